"""What a coordinator decides, and what comes of it: `Plan` goes into the runtime, `Outcome` comes out.

A plan is data: records to write and an answer that holds once they are committed.  An operation that returns a plan is
a pure function of the state and the time.  So it can be tested without a log, and the state is unchanged when the
records cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kbroker.errors import ErrorCode, KafkaError
from kbroker.replication.commit_wait import CommitWait
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from kbroker.waiting import CallLater

KeyValue = tuple[bytes, bytes | None]
Settled = Callable[[KafkaError | None], None]
T = TypeVar("T")


class TransactionalProducer(NamedTuple):
    """In whose transaction records are written; the default is none."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


NO_TRANSACTION = TransactionalProducer()


class Plan(NamedTuple, Generic[T]):
    """Records to write, and the answer once they are committed.

    The records are one batch: all of them are there after a crash, or none.  `divisible` records (tombstones of a large
    group) may become several batches, each replayed once it is appended.  `apply` changes the state as replaying the
    records would, at a lower cost; None: they are replayed.
    """

    answer: T
    records: Sequence[KeyValue] = ()
    producer: TransactionalProducer = NO_TRANSACTION
    divisible: bool = False
    apply: Callable[[], None] | None = None


class CommitPoint(Protocol):
    """Knows up to which point a partition of an internal topic is committed."""

    def is_committed(self, partition_index: int) -> bool:
        """Whether all that was appended to the partition is committed."""

    def when_committed(self, partition_index: int, settled: Settled) -> None:
        """Call `settled`, in another turn of the loop, once all that is in the partition now is committed; with an
        error if this broker will not see it committed."""


class Outcome(Generic[T]):
    """An answer, and whether it may be given: not before all that it tells of is committed."""

    __slots__ = ("_commits", "_partition_index", "answer")

    def __init__(self, answer: T, commits: CommitPoint, partition_index: int) -> None:
        self.answer = answer
        self._commits = commits
        self._partition_index = partition_index

    @property
    def is_committed(self) -> bool:
        """Whether the answer may be given now: always, where a partition commits alone."""
        return self._commits.is_committed(self._partition_index)

    def when_committed(self, settled: Settled) -> None:
        """Call `settled` once the answer may be given, immediately or in a later turn of the loop; with an error if
        this broker will not see the records committed."""
        if self._commits.is_committed(self._partition_index):
            settled(None)
        else:
            self._commits.when_committed(self._partition_index, settled)

    def settle_within(self, timeout_ms: int, call_later: CallLater, settled: Settled) -> None:
        """As `when_committed`, but with RequestTimedOutError after `timeout_ms`; what was written stays in the log, and
        may be committed later."""
        wait = CommitWait()
        self.when_committed(wait.expect())
        wait.then(lambda: settled(wait.error), timeout_ms, call_later)


# What clients are answered when the state topic refuses a write: only errors that their protocols know.
_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def write_error(error: KafkaError, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """The answer to a request whose records could not be written, or not be committed, because of `error`."""
    if error.code in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error.code in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return too_large if error.code in _TOO_LARGE else error.code
