"""Fetch (API 1): read record batches, waiting for them if asked to.

The answer names file regions, not bytes: record batches go from the page cache to the socket.  Sizes follow Kafka: the
first batch found comes whole even when it is larger than every limit, later partitions get what is left of `max_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kbroker._fast.fetch_target import FetchTarget, worth_reading
from kbroker._fast.session_fetch import SessionFetch
from kbroker.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.fetch_session import FetchPlan, FetchSession, PartitionKey
from kbroker.schemas import message
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.log_values import FetchIsolation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition

FetchResponse: Any = message("FetchResponse")
FetchableTopicResponse: Any = FetchResponse.FetchableTopicResponse
PartitionData: Any = FetchResponse.PartitionData
AbortedTransaction: Any = FetchResponse.AbortedTransaction
EpochEndOffset: Any = FetchResponse.EpochEndOffset

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
EMPTY = b""
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def handle_fetch(ctx: RequestContext, request: Any) -> Struct | None:
    """Versions 4 to 18.  v7 on: incremental sessions; v13 on: topics by id; v15 on: replica id in a tagged field.

    Fetches by followers are refused: this broker has no replicas elsewhere.
    """
    services = ctx.services
    replica_id = (
        request.replica_id if ctx.api_version < FIRST_VERSION_WITH_REPLICA_STATE else request.replica_state.replica_id
    )
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refuse(request, by_id, ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        plan = services.fetch_sessions.plan(
            request.session_id,
            request.session_epoch,
            _targets(request, by_id),
            _forgotten(request, by_id),
            by_id,
            services.clock.now_ms(),
        )
    except KafkaError as error:
        refusal: Struct = FetchResponse(error_code=error.code)
        return refusal
    return FetchRead(ctx, request, plan, by_id, replica_id >= 0).start()


def _refuse(request: Any, by_id: bool, code: ErrorCode) -> Struct:
    """The answer to a request that makes no sense; up to v12 its partitions are named, each with the code."""
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=[_failed(partition.partition, code, []) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    response: Struct = FetchResponse(error_code=code, session_id=request.session_id, responses=[] if by_id else topics)
    return response


def _failed(index: int, code: int, aborted: list[Any] | None) -> Any:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        preferred_read_replica=-1,
        aborted_transactions=aborted,
        records=EMPTY,
    )


def _targets(request: Any, by_id: bool) -> list[FetchTarget]:
    targets = [
        FetchTarget(
            # By id, a name is known where the fetch has waited already.
            (topic.topic or None) if by_id else topic.topic,
            topic.topic_id if by_id else ZERO_UUID,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    if len(targets) > 1:
        # A partition named twice is read once, as the last one says.
        targets = list({(target.topic or target.topic_id, target.index): target for target in targets}.values())
    return targets


def _forgotten(request: Any, by_id: bool) -> Iterable[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


class FetchRead:
    """One fetch from its plan to its answer, over one or more attempts."""

    __slots__ = (
        "_by_id",
        "_ctx",
        "_diverged",
        "_from_replica",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_plan",
        "_resting",
        "_wait_ms",
    )

    def __init__(self, ctx: RequestContext, request: Any, plan: FetchPlan, by_id: bool, from_replica: bool) -> None:
        self._ctx = ctx
        self._plan = plan
        self._by_id = by_id
        self._from_replica = from_replica
        self._isolation = (
            FetchIsolation.TXN_COMMITTED if request.isolation_level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK
        )
        self._max_bytes = min(request.max_bytes, ctx.services.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wait_ms = request.max_wait_ms
        self._diverged: list[FetchTarget] = []
        self._resting: list[Partition] = []

    def start(self) -> Struct | None:
        """Answer now, or wait for data and answer later."""
        answers, size, urgent = self._read(force=self._min_bytes <= 0 or self._wait_ms <= 0)
        if urgent or size >= self._min_bytes or self._wait_ms <= 0:
            return self._answer(answers)
        manager = self._ctx.services.replica_manager
        partitions = self._resting + [
            manager.partition(target.topic, target.index) for target, answer in answers if not answer.error_code
        ]
        if not partitions:
            return self._answer(answers)
        manager.purgatory.wait(self._ctx, self._attempt, partitions, self._wait_ms)
        return None

    def _attempt(self, force: bool) -> bool:
        answers, size, urgent = self._read(force)
        if not (force or urgent or size >= self._min_bytes):
            return False
        self._ctx.respond(self._answer(answers))
        return True

    def _targets(self, force: bool) -> Iterable[FetchTarget]:
        """The targets that must be read: of an incremental fetch those that may have something to tell.

        Others name all partitions in their answer, but while there is nothing in any, and none is owed, all may wait.
        The partitions of targets that are left out are kept for that.
        """
        manager = self._ctx.services.replica_manager
        targets = self._plan.targets
        self._resting = []
        if self._from_replica or self._max_bytes < 0:
            return targets
        incremental = self._plan.incremental
        if force and not incremental:
            return targets
        read, resting = worth_reading(targets, manager.topics, manager.names, self._by_id, incremental)
        if read and not incremental:
            return targets
        self._resting = resting
        return read

    def _read(self, force: bool) -> tuple[list[tuple[FetchTarget, Any]], int, bool]:
        """(what each partition answers, bytes in all, whether something must be told at once).

        Unless `force`, it may be left out that there is nothing.

        An unknown topic is not urgent: as in Kafka it is told when the others are, or its consumer would ask in a loop.
        """
        answers = []
        left = self._max_bytes
        found = 0
        urgent = False
        self._diverged.clear()
        for target in self._targets(force):
            try:
                answer, size = self._read_partition(target, left, found == 0)
            except KafkaError as error:
                # Kafka's way: null where a log was asked, an empty list where it did not come to that.
                unknown = error.code in UNKNOWN_TOPIC
                answer = _failed(target.index, error.code, [] if unknown else None)
                size = 0
                urgent = urgent or not unknown
            except OSError as error:
                refusal = self._partition(target).log.storage_error("reading records", error)
                answer, size, urgent = _failed(target.index, refusal.code, None), 0, True
            answers.append((target, answer))
            found += size
            left = max(0, left - size)
        return answers, found, urgent or bool(self._diverged)

    def _read_partition(self, target: FetchTarget, left: int, first: bool) -> tuple[Any, int]:
        partition = self._partition(target)
        partition.check_leader_epoch(target.current_leader_epoch)
        log = partition.log
        if target.last_fetched_epoch >= 0:
            diverging = self._divergence(partition, target)
            if diverging is not None:
                return diverging, 0
        limit = min(target.max_bytes, left)
        if limit < 0:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        committed = self._isolation is FetchIsolation.TXN_COMMITTED
        found = ORDINARY.read(log, target.index, target.fetch_offset, limit, first, committed)
        if found is not None:
            return found, len(found.records)
        data = log.read(target.fetch_offset, limit, self._isolation, first)
        aborted = None
        if committed:
            aborted = [
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in data.aborted_transactions or ()
            ]
        # Part of a batch helps nobody when it is all that there is room for.
        records = None if data.first_entry_incomplete else data.records
        answer = PartitionData(
            partition_index=target.index,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            aborted_transactions=aborted,
            records=EMPTY if records is None else records,
        )
        return answer, 0 if records is None else data.size

    def _partition(self, target: FetchTarget) -> Partition:
        manager = self._ctx.services.replica_manager
        if self._by_id:
            try:
                target.topic = manager.topic_name(target.topic_id)
            except UnknownTopicIdError:
                if target.topic is None:
                    raise
                # A session's topic that was there before: gone, or another one has its name now.
                manager.partition(target.topic, target.index)
                raise InconsistentTopicIdError() from None
        if self._from_replica:
            raise NotLeaderOrFollowerError()
        partition: Partition = manager.partition(target.topic, target.index)
        return partition

    def _divergence(self, partition: Partition, target: FetchTarget) -> Any | None:
        """The answer that tells a reader where its log and ours part (KIP-595), or None when they do not."""
        epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise OffsetOutOfRangeError()
        if epoch >= target.last_fetched_epoch and end_offset >= target.fetch_offset:
            return None
        log = partition.log
        self._diverged.append(target)
        return PartitionData(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
            aborted_transactions=None,
            records=EMPTY,
        )

    def _answer(self, answers: list[tuple[FetchTarget, Any]]) -> Struct:
        plan = self._plan
        if plan.session is not None:
            told = [
                (target, answer)
                for target, answer in answers
                if target.has_news(
                    answer.error_code, len(answer.records), answer.high_watermark, answer.log_start_offset
                )
                or target in self._diverged
            ]
            if plan.incremental:
                self._ctx.services.fetch_sessions.rotate(
                    plan.session, [target for target, answer in told if len(answer.records) > 0]
                )
                answers = told
        topics: dict[str | bytes | None, Any] = {}
        for target, answer in answers:
            key = target.topic_id if self._by_id else target.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=target.topic or "", topic_id=target.topic_id)
            topic.partitions.append(answer)
        response: Struct = FetchResponse(session_id=plan.session_id, responses=list(topics.values()))
        return response


def resume(ctx: RequestContext, request: Any, session: FetchSession, targets: list[FetchTarget]) -> None:
    """Go on with an incremental fetch that `ORDINARY` took into its session and let wait."""
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    plan = FetchPlan(targets, session, incremental=True)
    answer = FetchRead(ctx, request, plan, by_id, from_replica=False).start()
    if answer is not None:
        ctx.respond(answer)


ORDINARY = SessionFetch(PartitionData, FileSystem, resume)
HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.FETCH, 4, 18, handle_fetch, direct=ORDINARY),)
