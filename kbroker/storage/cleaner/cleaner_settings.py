"""The settings of the pool of cleaners, and what each thread has of them."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.config import BrokerConfig

#: The most that one thread's offset map takes, as in Kafka.
MOST_MAP_BYTES = 0x7FFFFFFF
LEAST_INTERVAL_MS = 100


class CleanerSettings(NamedTuple):
    """The settings of the pool."""

    enabled: bool
    threads: int
    dedupe_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """What the broker's settings say."""
        get = config.get
        return cls(
            get("log.cleaner.enable"),
            get("log.cleaner.threads"),
            get("log.cleaner.dedupe.buffer.size"),
            get("log.cleaner.io.buffer.load.factor"),
            get("log.cleaner.io.buffer.size"),
            get("log.cleaner.io.max.bytes.per.second"),
            get("log.cleaner.backoff.ms"),
        )

    @property
    def interval_ms(self) -> int:
        """How often a worker that found nothing to do looks again."""
        return max(self.backoff_ms, LEAST_INTERVAL_MS)

    @property
    def map_bytes(self) -> int:
        """The offset map of one thread, at most."""
        return min(self._share_bytes, MOST_MAP_BYTES)

    @property
    def buffer_bytes(self) -> int:
        """The size of a thread's read buffer, and that of its write buffer."""
        return self.io_buffer_bytes // self.threads // 2

    @property
    def excess(self) -> str:
        """A warning if a thread's share of the dedupe buffer is more than it uses; else empty."""
        if not self.threads or self._share_bytes <= MOST_MAP_BYTES:
            return ""
        return (
            "Cannot use more than 2G of cleaner buffer space per cleaner thread, ignoring excess buffer space: "
            f"log.cleaner.dedupe.buffer.size is {self.dedupe_bytes}, for log.cleaner.threads={self.threads}"
        )

    @property
    def _share_bytes(self) -> int:
        return self.dedupe_bytes // self.threads


def check_reconfiguration(old: CleanerSettings, new: CleanerSettings) -> None:
    """Kafka's rule for a change at run time: at least one thread, at most twice and at least half as many as now.

    Raises ValueError."""
    if new.threads == old.threads:
        return
    if new.threads < 1:
        raise ValueError("Log cleaner threads should be at least 1")
    if new.threads < old.threads // 2:
        raise ValueError(f"Log cleaner threads cannot be reduced to less than half the current value {old.threads}")
    if new.threads > old.threads * 2:
        raise ValueError(f"Log cleaner threads cannot be increased to more than double the current value {old.threads}")
