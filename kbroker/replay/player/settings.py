"""How a replay sends: guarantees, batching, limits.  Everything is picklable, since executors get it as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.replay.traces.errors import TraceError
from kbroker.types import JsonObject

ACKS = ("all", "1", "0")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class ReplayError(TraceError):
    """A replay that cannot start, or did not end as a replay.  The text is for the user."""


class NoRowsError(ReplayError):
    """There is nothing to replay."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The producer's settings.

    acks                 all, 1 or 0
    idempotence          no duplicates by retries, order kept
    compression          none, gzip, snappy, lz4 or zstd
    linger_ms            how long a batch waits for more
    batch_bytes          size of a batch at most
    timeout_s            how long a record may take before it counts as failed; a shorter outage loses nothing
    queue_records        records that wait in an executor at most; when it is full, sending waits, and that is reported
    transaction_records  records in a transaction; None: no transactions
    late_ms              a record sent later than this after its time counts as late
    consume_wait_ms      how long a consume operation waits for a record
    by_columns           send columns from C where the other settings allow it; False: each record from Python
    client               librdkafka's own settings, which overrule these
    """

    acks: str = "all"
    idempotence: bool = True
    compression: str = "none"
    linger_ms: float = 5.0
    batch_bytes: int = 1_000_000
    timeout_s: float = 120.0
    queue_records: int = 200_000
    transaction_records: int | None = None
    late_ms: float = 5.0
    consume_wait_ms: int = 500
    by_columns: bool = True
    client: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """ReplayError for what contradicts itself."""
        if self.idempotence and self.acks != "all":
            raise ReplayError(f"--acks {self.acks} and idempotence contradict each other: say --no-idempotence")
        if self.transaction_records is not None and not self.idempotence:
            raise ReplayError("transactions need idempotence: leave out --no-idempotence")

    def producer(self, bootstrap: str, transactional_id: str | None) -> dict[str, object]:
        """What confluent-kafka's Producer takes."""
        settings: JsonObject = {
            "bootstrap.servers": bootstrap,
            "client.id": "kbroker-replay",
            "log_level": 0,
            "acks": self.acks,
            "enable.idempotence": self.idempotence,
            "compression.type": self.compression,
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_bytes,
            "message.timeout.ms": int(self.timeout_s * 1000),
            "queue.buffering.max.messages": self.queue_records,
            "queue.buffering.max.kbytes": 1 << 20,
            "allow.auto.create.topics": False,
            "retry.backoff.max.ms": 1000,
            "reconnect.backoff.max.ms": 1000,
            # The partitioner of the Java client, so that keys land where production put them.
            "partitioner": "murmur2_random",
        }
        if transactional_id is not None:
            # A record may take no longer than its transaction.
            longest = max(60_000, settings["message.timeout.ms"])
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": longest}
        return settings | dict(self.client)

    def consumer(self, bootstrap: str, group: str) -> dict[str, object]:
        """What confluent-kafka's Consumer takes."""
        return {
            "bootstrap.servers": bootstrap,
            "client.id": "kbroker-replay",
            "log_level": 0,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            # Operations may be rarer than the client's own limit for polls.
            "max.poll.interval.ms": 86_400_000,
            "fetch.wait.max.ms": min(self.consume_wait_ms, 100),
        } | dict(self.client)

    def promises(self) -> dict[str, bool]:
        """What the chosen guarantees promise of acknowledged records."""
        in_order = self.idempotence or self.client.get("max.in.flight") == "1"
        return {"none_lost": self.acks != "0", "none_duplicated": self.idempotence, "order_kept": in_order}


@dataclass(frozen=True, slots=True)
class Job:
    """What the driver gives each executor.  `channel` is the driver's (host, port), None without one."""

    bootstrap: str
    run_id: str
    delivery: Delivery
    topics: tuple[str, ...]
    subscriptions: Mapping[str, tuple[str, ...]]
    channel: tuple[str, int] | None
    token: str
    produces: bool
    lead_s: float = 2.0
    stop_patience_s: float = 10.0
