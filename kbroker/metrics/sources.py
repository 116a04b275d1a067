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
from kbroker.metrics.maintenance import Values
from kbroker.metrics.recent import Recent
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.counters import RequestStats
    from kbroker.metrics.loop_delay import LoopDelaySampler

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


class TransactionTotals(NamedTuple):
    """Transactional ids by state, and transactions that were aborted for their time since start."""

    states: Mapping[str, int]
    timed_out: int


@dataclass(frozen=True, slots=True)
class ConnectionTotals:
    """Connections now, and totals since start: accepted by listener, refused and closed by reason, and those above a
    rate limit by outcome (`delayed`, `refused`)."""

    current: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    paced: Mapping[str, int] = field(default_factory=dict)


class DirectorySpace(NamedTuple):
    """A log directory: bytes left there, whether appends find no space, and writes that found none so far."""

    path: str
    free_bytes: int
    is_refusing: bool
    refused_count: int


class ClientSample(NamedTuple):
    """A value that a client pushed (KIP-714)."""

    name: str
    labels: Mapping[str, str]
    value: float
    is_counter: bool


class CommitTotals(NamedTuple):
    """fsyncs that appends waited for, their time in all, and the produce answers and state writes that waited."""

    fsync_count: int = 0
    fsync_seconds: float = 0.0
    settled_count: int = 0


class ConversionTotals(NamedTuple):
    """Records converted between message formats so far, and what is held of those for consumers."""

    produce_count: int = 0
    produce_seconds: float = 0.0
    fetch_count: int = 0
    fetch_seconds: float = 0.0
    held_bytes: int = 0


KNOWN, ASKED, REFUSED, AWAY = SCHEMA_OUTCOMES = ("known", "asked", "refused", "away")
FOUND, UNKNOWN, FAILED = SCHEMA_ANSWERS = ("found", "unknown", "failed")


class SchemaTotals(NamedTuple):
    """Batches of topics that ask for schemas, by how they were judged: with ids that were known, after the registry was
    asked, refused, and not judged as the registry was away; ids that the registry was asked for, by its answer; and the
    ids that are believed to be there now."""

    batches: Mapping[str, int] = {}
    lookups: Mapping[str, int] = {}
    known_ids: int = 0


class StorageTotals(NamedTuple):
    """Segments with an open file, how many there may be, maps of their indexes; idempotent producers remembered.

    Evictions: files closed to stay within the budget, and producers forgotten for `kbroker.max.producers`.
    """

    open_segments: int = 0
    open_segments_limit: int = 0
    open_maps: int = 0
    open_segment_evictions: int = 0
    producers: int = 0
    producer_evictions: int = 0


class QuotaRow(Protocol):
    """What the clients that share one quota use; `kbroker.quotas.meters.MeterRow` has these attributes."""

    @property
    def kind(self) -> str:
        """produce, fetch, request or controller_mutation."""

    @property
    def user(self) -> str:
        """The user; empty where all share it."""

    @property
    def client_id(self) -> str:
        """The client id; empty where all share it."""

    @property
    def rate(self) -> float:
        """What they use per second, in the quota's unit."""

    @property
    def limit(self) -> float:
        """What they may use."""

    @property
    def throttled_count(self) -> int:
        """Answers that named a throttle time."""

    @property
    def throttled_ms(self) -> int:
        """The sum of these times."""


class OfflineTotals(NamedTuple):
    """Log directories that have failed, and partitions without a log because of that."""

    directories: tuple[str, ...] = ()
    partition_count: int = 0


def _no_connections() -> ConnectionTotals:
    return ConnectionTotals()


def _no_logs() -> Collection[LogView]:
    return ()


def _no_groups() -> Iterable[GroupSummary]:
    return ()


NO_TRANSACTIONS = TransactionTotals({}, 0)


def _no_transactions() -> TransactionTotals:
    return NO_TRANSACTIONS


def _no_holders() -> Iterable[StableOffsetHolder]:
    return ()


def _no_quotas() -> Iterable[QuotaRow]:
    return ()


def _no_directories() -> Iterable[DirectorySpace]:
    return ()


def _no_samples() -> Iterable[ClientSample]:
    return ()


def _nothing() -> int:
    return 0


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
    """All that a scrape reads.

    With more than `max_partitions` logs the series per partition are left out and sums by topic take their place;
    with more topics than that, the sums over all remain.  The same limit holds for rows of committed offsets.
    `kbroker.metrics.max.partitions` sets it.
    """

    version: str
    node_id: int
    cluster_id: str
    requests: RequestStats
    api_name: Callable[[int], str]
    loop_delay: LoopDelaySampler | None = None
    connections: Callable[[], ConnectionTotals] = _no_connections
    logs: Callable[[], Collection[LogView]] = _no_logs
    groups: Callable[[], Iterable[GroupSummary]] = _no_groups
    ends_elsewhere: Callable[[Collection[TopicPartition]], Awaitable[Mapping[tuple[str, int], int]]] = _no_ends
    quotas: Callable[[], Iterable[QuotaRow]] = _no_quotas
    transactions: Callable[[], TransactionTotals] = _no_transactions
    stable_offset_holders: Callable[[], Iterable[StableOffsetHolder]] = _no_holders
    fetches_waiting: Callable[[], int] = _nothing
    directories: Callable[[], Iterable[DirectorySpace]] = _no_directories
    commits: Callable[[], CommitTotals] = CommitTotals
    conversions: Callable[[], ConversionTotals] = ConversionTotals
    schemas: Callable[[], SchemaTotals] = SchemaTotals
    storage: Callable[[], StorageTotals] = StorageTotals
    offline: Callable[[], OfflineTotals] = OfflineTotals
    rebalances: Callable[[], int] = _nothing
    expired_offsets: Callable[[], int] = _nothing
    maintenance: Callable[[Pace], Awaitable[Values]] = _no_values
    cluster: Callable[[Pace], Awaitable[Values]] = _no_values
    security: Callable[[], Values] = dict
    client_samples: Callable[[], Iterable[ClientSample]] = _no_samples
    kafka: Callable[[Pace], Awaitable[KafkaFigures]] = _no_kafka
    recent: Recent = field(default_factory=_no_recent)
    max_partitions: int = 2_000
    slices: Slices = field(default_factory=Slices)
