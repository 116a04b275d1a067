"""How far the recovery of a start is, for the log, `/readyz` and the metrics.

Each log has its own figures, which the one thread that recovers it writes; whoever reports sums them up.  So nothing
is locked, and a report may be a batch behind.
"""

from __future__ import annotations

import time
from typing import NamedTuple

LEAST_SECONDS = 0.5
REPORT_SECONDS = 5.0


class LogProgress:
    """One log: segments and bytes that recovery has still to read, and the bytes that it has read."""

    __slots__ = ("bytes_done", "bytes_left", "is_done", "segments_left")

    def __init__(self) -> None:
        self.segments_left = 0
        self.bytes_left = 0
        self.bytes_done = 0
        self.is_done = False

    def expect(self, segments: int, size_bytes: int) -> None:
        """What is left, as far as it is known now."""
        self.segments_left = segments
        self.bytes_left = size_bytes

    def read(self, size_bytes: int) -> None:
        self.bytes_done += size_bytes
        self.bytes_left = max(0, self.bytes_left - size_bytes)

    def finish(self) -> None:
        self.expect(0, 0)
        self.is_done = True


class DirectoryRecovery(NamedTuple):
    """What recovery has to do in one log directory; `seconds_left` is None while nobody can say."""

    path: str
    logs_left: int
    segments_left: int
    bytes_left: int
    seconds_left: float | None


class RecoveryProgress:
    """The start of a broker: all its logs, and those of them that are recovered, by directory."""

    __slots__ = ("_logs", "_started", "logs_done", "logs_total", "next_report")

    def __init__(self) -> None:
        self.logs_total = 0
        self.logs_done = 0
        self._started = time.monotonic()
        self.next_report = self._started + REPORT_SECONDS
        self._logs: dict[str, list[LogProgress]] = {}

    def log(self, path: str) -> LogProgress:
        """A log in the directory `path` that may have to be recovered."""
        if not self._logs:
            self._started = time.monotonic()
            self.next_report = self._started + REPORT_SECONDS
        progress = LogProgress()
        self._logs.setdefault(path, []).append(progress)
        return progress

    def directories(self) -> list[DirectoryRecovery]:
        """The directories where logs were recovered, with what is left."""
        seconds = time.monotonic() - self._started
        found = []
        for path, logs in list(self._logs.items()):
            left = sum(log.bytes_left for log in logs)
            done = sum(log.bytes_done for log in logs)
            found.append(
                DirectoryRecovery(
                    path,
                    sum(not log.is_done for log in logs),
                    sum(log.segments_left for log in logs),
                    left,
                    _seconds_left(left, done, seconds),
                )
            )
        return found

    @property
    def text(self) -> str:
        """One line for a person."""
        said = f"recovering logs, {self.logs_done} of {self.logs_total}"
        directories = self.directories()
        segments = sum(each.segments_left for each in directories)
        if not segments:
            return said
        size_bytes = sum(each.bytes_left for each in directories)
        said += f"; {segments} segment(s) with {size_bytes / 1e6:,.0f} MB left"
        times = [each.seconds_left for each in directories if each.seconds_left is not None]
        return f"{said}, about {max(times):.0f} s" if times else said


def _seconds_left(left: int, done: int, seconds: float) -> float | None:
    if not left:
        return 0.0
    return left * seconds / done if done and seconds > LEAST_SECONDS else None
