"""What metrics reads, as Protocols and plain values: the broker passes its live parts in, metrics imports none.

Every callable here is called on the event loop at scrape time and must only read, without waiting; one that has a lot
to read is a coroutine function, which gives the loop back in between (`Pace`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.base.slices import Pace, Slices
from kbroker.metrics.kafka_sources import KafkaFigures
from kbroker.metrics.loop_delay import LoopDelaySampler
from kbroker.metrics.recent import Hour, Recent
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.counters import RequestStats
    from kbroker.metrics.families import Values

#: When this module was first imported, which is when the process started, for all that uptime is used for.
STARTED_AT = time.time()


class LogView(Protocol):
    """The part of a partition's log that is measured; `UnifiedLog` has these attributes."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log it is."""

    @property
    def parent(self) -> str:
        """The log directory that it lies in."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read."""

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""

    @property
    def segment_count(self) -> int:
        """Number of segments."""


class GroupSummary(NamedTuple):
    """One consumer group; `committed` has (topic, partition, offset) rows."""

    group_id: str
    state: str
    member_count: int
    committed: Iterable[tuple[str, int, int]]


class StableOffsetHolder(NamedTuple):
    """What read_committed consumers of a partition wait for: `lag` records, `seconds` so far.  `transactional_id` is
    empty where no coordinator here knows the transaction."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    lag: int
    seconds: float


class ClientSample(NamedTuple):
    """A value that a client pushed (KIP-714)."""

    name: str
    labels: Mapping[str, str]
    value: float
    is_counter: bool


#: Batches of topics that ask for schemas: with ids that were known, after the registry was asked, refused, and not
#: judged as the registry was away.
KNOWN, ASKED, REFUSED, AWAY = SCHEMA_OUTCOMES = ("known", "asked", "refused", "away")
#: What the registry says of an id.
FOUND, UNKNOWN, FAILED = SCHEMA_ANSWERS = ("found", "unknown", "failed")


class QuotaRow(NamedTuple):
    """What the clients that share one quota use; user and client id are empty where all share it.

    `kind`: produce, fetch, request or controller_mutation.  `rate` and `limit` in the quota's unit a second; of a token
    bucket `rate` is what it holds.  The throttle times that answers have named: how many, and their sum.
    """

    kind: str
    user: str
    client_id: str
    rate: float
    limit: float
    throttled_count: int
    throttled_ms: int

    @property
    def throttled_seconds(self) -> float:
        """The sum in seconds."""
        return self.throttled_ms / 1000


async def _no_values(_: Pace) -> Values:
    return {}


async def _no_kafka(_: Pace) -> KafkaFigures:
    return KafkaFigures()


async def _no_ends(_: Collection[TopicPartition]) -> Mapping[tuple[str, int], int]:
    return {}


def _no_recent() -> Recent:
    return Recent(dict, time.monotonic)


@dataclass(frozen=True, slots=True)
class Sources:
    """All that a scrape reads.  Values are those of `exposition`'s families: of connections, log directories,
    transactions, all else that is counted at once, and what takes a look at every partition.

    With more than `max_partitions` logs the series per partition are left out and sums by topic take their place;
    with more topics than that, the sums over all remain.  The same limit holds for rows of committed offsets.
    `kbroker.metrics.max.partitions` sets it.
    """

    version: str
    node_id: int
    cluster_id: str
    requests: RequestStats
    api_name: Callable[[int], str]
    loop_delay: LoopDelaySampler = field(default_factory=LoopDelaySampler)
    logs: Callable[[], Collection[LogView]] = tuple
    groups: Callable[[], Iterable[GroupSummary]] = tuple
    ends_elsewhere: Callable[[Collection[TopicPartition]], Awaitable[Mapping[tuple[str, int], int]]] = _no_ends
    quotas: Callable[[], Iterable[QuotaRow]] = tuple
    stable_offset_holders: Callable[[], Iterable[StableOffsetHolder]] = tuple
    client_samples: Callable[[], Iterable[ClientSample]] = tuple
    connections: Callable[[], Values] = dict
    directories: Callable[[], Values] = dict
    transactions: Callable[[], Values] = dict
    counted: Callable[[], Values] = dict
    gathered: Callable[[Pace], Awaitable[Values]] = _no_values
    kafka: Callable[[Pace], Awaitable[KafkaFigures]] = _no_kafka
    recent: Recent = field(default_factory=_no_recent)
    hour: Hour = field(default_factory=Hour)
    max_partitions: int = 2_000
    slices: Slices = field(default_factory=Slices)
