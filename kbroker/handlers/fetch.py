"""Fetch (API 1): read record batches, waiting for them if asked to.

The answer names file regions, not bytes: record batches go from the page cache to the socket.  Sizes follow Kafka: the
first batch found comes whole even when it is larger than every limit, later partitions get what is left of `max_bytes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from kbroker._fast.log.fetch_target import FetchTarget, worth_reading
from kbroker._fast.net.pending import DelayedFetch, Pending
from kbroker._fast.requests.session_fetch import SessionFetch
from kbroker.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.fetch_session import FetchPlan, FetchSession, PartitionKey
from kbroker.schemas import wire
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.delayed_fetch import FetchPurgatory
    from kbroker.replication.partition import Partition

FetchResponse: Any = wire.FetchResponse
FetchableTopicResponse: Any = FetchResponse.FetchableTopicResponse
PartitionData: Any = FetchResponse.PartitionData
AbortedTransaction: Any = FetchResponse.AbortedTransaction
EpochEndOffset: Any = FetchResponse.EpochEndOffset

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
# From so many named partitions on, a fetch is served in slices of the loop's time (2,000 take some 2 ms).
MANY_PARTITIONS = 2_000
# Such a fetch looks for data again after this time, at the least, and after so many times what looking took.
LOOK_AGAIN_SECONDS = 0.02
LOOKS_APART = 4
STEP_PARTITIONS = 256
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
CONSUMER = -1
EMPTY = b""
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def handle_fetch(ctx: RequestContext, request: wire.FetchRequest) -> Struct | Pending | Coroutine[Any, Any, Struct]:
    """Versions 4 to 18.  v7 on: incremental sessions; v13 on: topics by id; v15 on: replica id in a tagged field.

    A follower reads to the log end, and what it asks for tells how far it is (`Partition.follower_fetched`).  A fetch
    that names more than MANY_PARTITIONS is served in slices of the loop's time; where it waits for data, it looks again
    from time to time.
    """
    replica_id = (
        request.replica_id if ctx.api_version < FIRST_VERSION_WITH_REPLICA_STATE else request.replica_state.replica_id
    )
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refuse(request, by_id, ErrorCode.UNKNOWN_SERVER_ERROR)
    if sum([len(topic.partitions) for topic in request.topics]) > MANY_PARTITIONS:
        return _fetch_many(ctx, request, by_id, replica_id)
    targets = [_target(topic, partition, by_id) for topic in request.topics for partition in topic.partitions]
    plan = _plan(ctx, request, _named_once(targets), by_id)
    if not isinstance(plan, FetchPlan):
        return plan
    return FetchRead(ctx, request, plan, by_id, replica_id).start()


def _plan(ctx: RequestContext, request: Any, targets: list[FetchTarget], by_id: bool) -> FetchPlan | Struct:
    """What to read, or the answer that refuses it."""
    services = ctx.services
    try:
        plan: FetchPlan = services.fetch_sessions.plan(
            request.session_id,
            request.session_epoch,
            targets,
            _forgotten(request, by_id),
            by_id,
            services.clock.now_ms(),
        )
    except KafkaError as error:
        refusal: Struct = FetchResponse(error_code=error.code)
        return refusal
    return plan


async def _fetch_many(ctx: RequestContext, request: Any, by_id: bool, replica_id: int) -> Struct:
    pace = ctx.services.slices.pace()
    targets = []
    for topic in request.topics:
        for partition in topic.partitions:
            await pace
            targets.append(_target(topic, partition, by_id))
    plan = _plan(ctx, request, _named_once(targets), by_id)
    if not isinstance(plan, FetchPlan):
        return plan
    return await FetchRead(ctx, request, plan, by_id, replica_id).look_until_there(pace)


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


def _target(topic: Any, partition: Any, by_id: bool) -> FetchTarget:
    return FetchTarget(
        # By id, a name is known where the fetch has waited already.
        (topic.topic or None) if by_id else topic.topic,
        topic.topic_id if by_id else ZERO_UUID,
        partition.partition,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )


def _named_once(targets: list[FetchTarget]) -> list[FetchTarget]:
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


class _Reading:
    """How far one reading of a fetch's partitions is."""

    __slots__ = ("answers", "found", "left", "urgent")

    def __init__(self, max_bytes: int) -> None:
        self.answers: list[tuple[FetchTarget, Any]] = []
        self.left = max_bytes
        self.found = 0
        self.urgent = False


class FetchRead:
    """One fetch from its plan to its answer, over one or more attempts."""

    __slots__ = (
        "_by_id",
        "_ctx",
        "_diverged",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_plan",
        "_replica_id",
        "_resting",
        "_wait_ms",
    )

    def __init__(self, ctx: RequestContext, request: Any, plan: FetchPlan, by_id: bool, replica_id: int) -> None:
        self._ctx = ctx
        self._plan = plan
        self._by_id = by_id
        self._replica_id = replica_id
        if replica_id >= 0:
            self._isolation = FetchIsolation.LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self._isolation = FetchIsolation.TXN_COMMITTED
        else:
            self._isolation = FetchIsolation.HIGH_WATERMARK
        self._max_bytes = min(request.max_bytes, ctx.services.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wait_ms = request.max_wait_ms
        self._diverged: list[FetchTarget] = []
        self._resting: list[Partition] = []

    def start(self) -> Struct | Pending:
        """The answer, or what gives it when there are data."""
        answers, size, urgent = self._read(force=self._min_bytes <= 0 or self._wait_ms <= 0)
        if urgent or size >= self._min_bytes or self._wait_ms <= 0:
            return self._answer(answers)
        manager = self._ctx.services.replica_manager
        partitions = self._resting + [
            manager.partition(target.topic or "", target.index) for target, answer in answers if not answer.error_code
        ]
        if not partitions:
            return self._answer(answers)
        return DelayedRead(self, manager.purgatory, tuple(partitions), self._wait_ms)

    async def look_until_there(self, pace: Pace) -> Struct:
        """Read many partitions in slices, again and again until there is enough or the time is up.

        To wait with all of them as other fetches do would take a slice and more for each batch that comes.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_ms / 1000
        while True:
            began = loop.time()
            answers, size, urgent = await self._read_slowly(pace)
            left = deadline - loop.time()
            if urgent or size >= self._min_bytes or left <= 0 or not self._ctx.open:
                return await self._answer_slowly(answers, pace)
            await asyncio.sleep(min(left, max(LOOK_AGAIN_SECONDS, LOOKS_APART * (loop.time() - began))))

    def attempt(self, force: bool) -> Struct | None:
        """Read again: the answer, or None while there is too little and that need not be said (`force`)."""
        answers, size, urgent = self._read(force)
        if not (force or urgent or size >= self._min_bytes):
            return None
        return self._answer(answers)

    def _targets(self, force: bool) -> Iterable[FetchTarget]:
        """The targets that must be read: of an incremental fetch those that may have something to tell.

        Others name all partitions in their answer, but while there is nothing in any, and none is owed, all may wait.
        The partitions of targets that are left out are kept for that.
        """
        manager = self._ctx.services.replica_manager
        targets = self._plan.targets
        self._resting = []
        if self._replica_id >= 0 or self._max_bytes < 0:
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
        reading = _Reading(self._max_bytes)
        self._diverged.clear()
        for target in self._targets(force):
            self._read_one(target, reading)
        return reading.answers, reading.found, reading.urgent or bool(self._diverged)

    async def _read_slowly(self, pace: Pace) -> tuple[list[tuple[FetchTarget, Any]], int, bool]:
        """The same for many partitions, of which each has an answer."""
        reading = _Reading(self._max_bytes)
        self._diverged.clear()
        for target in self._plan.targets:
            await pace
            self._read_one(target, reading)
        return reading.answers, reading.found, reading.urgent or bool(self._diverged)

    def _read_one(self, target: FetchTarget, reading: _Reading) -> None:
        try:
            answer, size = self._read_partition(target, reading.left, reading.found == 0)
        except KafkaError as error:
            # Kafka's way: null where a log was asked, an empty list where it did not come to that.
            unknown = error.code in UNKNOWN_TOPIC
            answer = _failed(target.index, error.code, [] if unknown else None)
            size = 0
            reading.urgent = reading.urgent or not unknown
        except OSError as error:
            refusal = self._partition(target).log.storage_error("reading records", error)
            answer, size, reading.urgent = _failed(target.index, refusal.code, None), 0, True
        reading.answers.append((target, answer))
        reading.found += size
        reading.left = max(0, reading.left - size)

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
        if self._replica_id < 0:
            found = ORDINARY.read(log, target.index, target.fetch_offset, limit, first, committed)
            if found is not None:
                return found, len(found.records)
        data = log.read(target.fetch_offset, limit, self._isolation, first)
        if self._replica_id >= 0:
            partition.follower_fetched(self._replica_id, target.fetch_offset, target.log_start_offset)
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
            # What the follower has told moves it: the answer says what is committed now.
            high_watermark=log.high_watermark,
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
        partition = manager.partition(target.topic or "", target.index)
        if self._replica_id >= 0:
            partition.check_follower(self._replica_id)
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
        topics: dict[str | bytes | None, Any] = {}
        self._add(topics, self._told(answers))
        return self._response(topics)

    async def _answer_slowly(self, answers: list[tuple[FetchTarget, Any]], pace: Pace) -> Struct:
        answers = self._told(answers)
        topics: dict[str | bytes | None, Any] = {}
        for start in range(0, len(answers), STEP_PARTITIONS):
            await pace
            self._add(topics, answers[start : start + STEP_PARTITIONS])
        return self._response(topics)

    def _told(self, answers: list[tuple[FetchTarget, Any]]) -> list[tuple[FetchTarget, Any]]:
        """What the answer tells: of an incremental fetch only what is news."""
        plan = self._plan
        if plan.session is None:
            return answers
        told = [
            (target, answer)
            for target, answer in answers
            if target.has_news(answer.error_code, len(answer.records), answer.high_watermark, answer.log_start_offset)
            or target in self._diverged
        ]
        if not plan.incremental:
            return answers
        self._ctx.services.fetch_sessions.rotate(
            plan.session, [target for target, answer in told if len(answer.records) > 0]
        )
        return told

    def _add(self, topics: dict[str | bytes | None, Any], answers: Iterable[tuple[FetchTarget, Any]]) -> None:
        for target, answer in answers:
            key = target.topic_id if self._by_id else target.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=target.topic or "", topic_id=target.topic_id)
            topic.partitions.append(answer)

    def _response(self, topics: dict[str | bytes | None, Any]) -> Struct:
        response: Struct = FetchResponse(session_id=self._plan.session_id, responses=list(topics.values()))
        return response


class DelayedRead(DelayedFetch):
    """A fetch that waits, decoded."""

    def __init__(self, read: FetchRead, purgatory: FetchPurgatory, partitions: tuple[Partition, ...], wait_ms: int):
        super().__init__(purgatory, partitions, wait_ms)
        self._read = read

    def attempt(self, force: bool) -> bool:
        answer = self._read.attempt(force)
        if answer is None:
            return False
        self.answer(answer)
        return True


def resume(ctx: RequestContext, request: Any, session: FetchSession, targets: list[FetchTarget]) -> Struct | Pending:
    """The answer to an incremental fetch that `ORDINARY` took into its session and let wait."""
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    plan = FetchPlan(targets, session, incremental=True)
    return FetchRead(ctx, request, plan, by_id, CONSUMER).start()


ORDINARY = SessionFetch(PartitionData, FileSystem, resume)
HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.FETCH, 4, 18, handle_fetch, direct=ORDINARY),)
