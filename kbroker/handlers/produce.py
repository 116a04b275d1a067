"""Produce (API 0): append record batches to partitions.

Each partition carries one record batch of magic 2.  It is judged, given its offsets and written in this order while the
request's bytes still lie in the receive buffer, so an uncompressed batch is copied once: from there to the page cache.
Requests before version 3 carry message sets, which `storage/log/message_set_validator` makes one batch of.
A batch that takes long to decompress is judged by a thread before; the connection waits, others do not.  Several are
appended in slices of the loop's time.  The answer waits until what it acknowledges may be acknowledged (`Partition`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker._fast.net.pending import Pending
from kbroker._fast.net.route import NO_RESPONSE
from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker._fast.requests.fast_produce import FastProduce, ProduceVersions
from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode, InvalidTopicError, KafkaError
from kbroker.gate.access import require_topic
from kbroker.gate.authorizer import Operation
from kbroker.handlers.delayed_produce import Unacknowledged, answer_when_acknowledged
from kbroker.handlers.table import Handler
from kbroker.handlers.transactional_produce import Guards, may_write_transactions, verify_batches
from kbroker.log_output import RateLimitedLog
from kbroker.metadata.topic_names import INTERNAL_TOPICS, is_internal
from kbroker.protocol.api import ApiKey
from kbroker.protocol.schema import parse_versions
from kbroker.schemas import schema, wire
from kbroker.storage.log.log_validator import (
    AnalyzedBatch,
    AppendOrigin,
    RecordValidationError,
    UnfitRequestError,
)
from kbroker.storage.log.message_set_validator import (
    FIRST_PRODUCE_VERSION_OF_BATCHES,
    LongRecordsError,
    validate_records,
)
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.route import NoResponse
    from kbroker._fast.requests.fast_produce import Appended
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition

    Topic = wire.ProduceRequest.TopicProduceData
    Row = wire.ProduceRequest.PartitionProduceData
    # The answer, what gives it later, what stands for none; None where the connection is closed.
    Produced = wire.ProduceResponse | Pending | NoResponse | None

logger = logging.getLogger("kbroker.produce")
complaints = RateLimitedLog(logger)

# Of a row: the first and last offset at which it was appended; what a thread has found out; why it is refused.
Known = tuple[int, int] | AnalyzedBatch | KafkaError

NO_RECORDS = -1, -1

ProduceResponse = wire.ProduceResponse
TopicProduceResponse = ProduceResponse.TopicProduceResponse
PartitionProduceResponse = ProduceResponse.PartitionProduceResponse
BatchIndexAndErrorMessage = ProduceResponse.BatchIndexAndErrorMessage

ALL_REPLICAS = -1
NO_ACKNOWLEDGEMENT = 0
ADMIN_CLIENT_ID = "__admin_client"
FIRST_VERSION, LAST_VERSION = 0, 13
FIRST_VERSION_WITH_TOPIC_IDS = schema("ProduceRequest").first_version("topic_data.topic_id")
EMPTY = memoryview(b"")
# Kafka tells where the log starts with every refusal but these.
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


async def handle_produce(
    ctx: RequestContext, request: wire.ProduceRequest, appended: Appended | None = None
) -> Produced:
    """Versions 0 to 13; up to v2 with message sets, and the time of an append from v2 on.

    acks=0 gets no answer; when an append fails the connection is closed, the only sign such a producer can see.
    v8 on names the refused records; v13 on names topics by id.  `appended`: of each partition in their order the first
    and last offset, where the fast path has appended its batch.
    """
    pace = ctx.services.slices.pace()
    if not may_write_transactions(ctx, request):
        return await _refuse_all(ctx, request, pace)
    known: dict[int, Known] = {}
    if appended is not None:
        before = iter(appended)
        for topic in request.topic_data:
            for row in topic.partition_data:
                await pace
                offsets = next(before, None)
                if offsets is not None:
                    known[id(row)] = offsets
    guards: Guards = {}
    if request.transactional_id is not None and _are_valid(request.acks):
        rows = [each async for each in _rows_to_append(ctx, request, known, pace)]
        guards, refused = await verify_batches(ctx, request.transactional_id, rows, pace)
        known.update(refused)
    return await _append_all(ctx, request, known, guards)


async def _refuse_all(ctx: RequestContext, request: wire.ProduceRequest, pace: Pace) -> Produced:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    responses: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        await pace
        answers: list[PartitionProduceResponse] = []
        for row in topic.partition_data:
            await pace
            answers.append(PartitionProduceResponse(index=row.index, error_code=code, base_offset=-1))
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return _finish(ctx, request, responses, ())


async def _rows_to_append(
    ctx: RequestContext, request: wire.ProduceRequest, known: dict[int, Known], pace: Pace
) -> AsyncIterator[tuple[Row, Partition]]:
    """The rows that are still to be appended, each with the partition that it names; not where there is none."""
    for topic in request.topic_data:
        for row in topic.partition_data:
            await pace
            if id(row) not in known:
                with suppress(KafkaError):
                    yield row, _partition(ctx, topic, row.index)


def _are_valid(acks: int) -> bool:
    return acks in (0, 1, ALL_REPLICAS)


async def _judge_aside(ctx: RequestContext, topic: Topic, data: Row) -> Known:
    """What a thread finds out of long records."""
    try:
        partition = _partition(ctx, topic, data.index)
    except KafkaError as error:
        return error.with_traceback(None)
    if ctx.api_version >= FIRST_PRODUCE_VERSION_OF_BATCHES and partition.log.config.message_magic == MAGIC_V2:
        return await _in_thread(ctx, partition, data)
    async with ctx.services.conversions.turn:
        return await _in_thread(ctx, partition, data)


async def _in_thread(ctx: RequestContext, partition: Partition, data: Row) -> Known:
    """As `_judge_aside`, now."""
    under_way = ctx.services.replica_manager.judging
    judging = asyncio.get_running_loop().run_in_executor(None, _prepare, ctx, partition, data.records)
    # What a stop of the broker does not wait for: it stays there when the stop cancels this.
    under_way.add(judging)
    found: Known
    try:
        found = await judging or NO_RECORDS
    except KafkaError as error:
        # Its frames hold the batch: with the traceback in reach of them only the collector would free both.
        found = error.with_traceback(None)
    except OSError as error:
        found = partition.log.storage_error("writing a large batch", error)
    under_way.discard(judging)
    return found


def _prepare(ctx: RequestContext, partition: Partition, records: memoryview | None) -> AnalyzedBatch | None:
    """What a thread does for a long batch: judges it, and writes a large one to a file of its own."""
    analyzed = _judge(ctx, partition, records)
    if analyzed is not None and analyzed.info.magic == MAGIC_V2:
        analyzed.detached = partition.log.write_detached(analyzed.view)
    return analyzed


def _judge(
    ctx: RequestContext, partition: Partition, records: memoryview | None, *, on_loop: bool = False
) -> AnalyzedBatch | None:
    """The records in the form to be stored; None of a message set without a whole message.

    `on_loop`: LongRecordsError for what belongs in a thread.
    """
    if records is None:
        if ctx.api_version < FIRST_PRODUCE_VERSION_OF_BATCHES:
            raise UnfitRequestError("a message set that is null")
        records = EMPTY
    return validate_records(
        records,
        partition.log.config,
        ctx.services.clock.now_ms(),
        topic_partition=partition,
        produce_version=ctx.api_version,
        log_end_offset=partition.log.log_end_offset,
        on_loop=on_loop,
    )


async def _append_all(
    ctx: RequestContext, request: wire.ProduceRequest, known: dict[int, Known], guards: Guards
) -> Produced:
    """Appends each batch and gives the answer; `known` has what came of a row so far, by its id()."""
    pace = ctx.services.slices.pace()
    responses: list[TopicProduceResponse] = []
    waits: list[Unacknowledged] = []
    for topic in request.topic_data:
        await pace
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            await pace
            found, guard = known.get(id(data)), guards.get(id(data))
            answer = _answer(ctx, request.acks, topic, data, found, guard, waits)
            if answer is None:
                # One at a time, so that a request holds what one of its batches becomes, however many it has.
                found = await _judge_aside(ctx, topic, data)
                answer = _answer(ctx, request.acks, topic, data, found, guard, waits)
                _discard_what_is_left(ctx, found)
                assert answer is not None
            answers.append(answer)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return _finish(ctx, request, responses, waits)


def _discard_what_is_left(ctx: RequestContext, found: Known | None) -> None:
    """Removes what was written for a batch that the log has not taken: a duplicate, or one that was refused."""
    if isinstance(found, AnalyzedBatch) and found.detached is not None and found.detached.path:
        asyncio.get_running_loop().run_in_executor(None, found.detached.discard)


def _answer(
    ctx: RequestContext,
    acks: int,
    topic: Topic,
    data: Row,
    known: Known | None,
    guard: VerificationGuard | None,
    waits: list[Unacknowledged],
) -> PartitionProduceResponse | None:
    """Appends a batch, unless that was done; its answer, which is added to `waits` where it has to wait.

    None where a thread has to judge the batch first.
    """
    try:
        if not _are_valid(acks):
            # That there is no such partition is said before, as by Kafka.
            _partition(ctx, topic, data.index)
            return PartitionProduceResponse(
                index=data.index, error_code=ErrorCode.INVALID_REQUIRED_ACKS, base_offset=-1
            )
        return _append(ctx, topic, data, known, guard, acks == ALL_REPLICAS, waits)
    except LongRecordsError:
        return None
    except KafkaError as error:
        return _refuse(ctx, topic, data.index, error)


def _partition(ctx: RequestContext, topic: Topic, index: int) -> Partition:
    manager = ctx.services.replica_manager
    if ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic.name = manager.topic_name(topic.topic_id)
    name = topic.name
    require_topic(ctx, Operation.WRITE, name)
    if is_internal(name) and ctx.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopicError(f"Cannot append to internal topic {name}")
    partition: Partition = manager.partition(name, index)
    return partition


def _append(
    ctx: RequestContext,
    topic: Topic,
    data: Row,
    known: Known | None,
    guard: VerificationGuard | None,
    acks_all: bool,
    waits: list[Unacknowledged],
) -> PartitionProduceResponse:
    """Appends a batch, unless that was done; its answer.  Raises KafkaError, LongRecordsError."""
    partition = _partition(ctx, topic, data.index)
    if isinstance(known, tuple):
        first, last = known
        answer = PartitionProduceResponse(
            index=data.index, base_offset=first, log_start_offset=partition.log.log_start_offset
        )
    else:
        if acks_all:
            partition.check_in_sync()
        if isinstance(known, KafkaError):
            # Raised again it would hold the batch: the frames that it passes do.
            return _refuse(ctx, topic, data.index, known)
        analyzed = _judge(ctx, partition, data.records, on_loop=True) if known is None else known
        if analyzed is None:
            return PartitionProduceResponse(index=data.index, base_offset=-1)
        if analyzed.info.is_transactional and guard is None:
            # It was not verified: the request names no transactional id.
            raise KafkaError.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        result = ctx.services.replica_manager.append(
            partition, analyzed.view, origin=AppendOrigin.CLIENT, analyzed=analyzed, guard=guard or NO_GUARD
        )
        last = result.last_offset
        if analyzed.conversion_seconds:
            ctx.services.conversions.produced(last - result.first_offset + 1, analyzed.conversion_seconds)
        answer = PartitionProduceResponse(
            index=data.index,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time,
            log_start_offset=result.log_start_offset,
        )
    if not partition.is_acknowledged(last, by_all=acks_all):
        waits.append(Unacknowledged(partition, last, answer))
    return answer


def _refuse(ctx: RequestContext, topic: Topic, index: int, error: KafkaError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index, error_code=error.code, base_offset=-1)
    if error.code not in WITHOUT_LOG_START and not isinstance(error, UnfitRequestError):
        answer.log_start_offset = ctx.services.replica_manager.partition(topic.name, index).log.log_start_offset
    if isinstance(error, RecordValidationError):
        answer.error_message = error.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=bad.batch_index, batch_index_error_message=bad.message)
            for bad in error.record_errors
        ]
    return answer


def _finish(
    ctx: RequestContext,
    request: wire.ProduceRequest,
    responses: list[TopicProduceResponse],
    waits: Sequence[Unacknowledged],
) -> Produced:
    """The answer, or what gives it after a commit.  With acks=0 there is none: a failure closes the connection."""
    if request.acks != NO_ACKNOWLEDGEMENT:
        response = ProduceResponse(responses=responses)
        if waits:
            by_all = request.acks == ALL_REPLICAS
            return answer_when_acknowledged(response, waits, by_all=by_all, timeout_ms=request.timeout_ms)
        return response
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                complaints.info(
                    (answer.error_code, topic.name),
                    "closing the connection of %s: its produce request with acks=0 to %s-%d failed with %s",
                    ctx.client_id,
                    topic.name,
                    answer.index,
                    ErrorCode(answer.error_code).name,
                )
                ctx.connection.close("a produce request with acks=0 failed")
                return None
    return NO_RESPONSE


def versions() -> ProduceVersions:
    """What the fast path has to know of the field tables."""
    request, response = wire.ProduceRequest.schema, wire.ProduceResponse.schema
    (responses,) = (field for field in response.fields if field.name == "responses")
    (rows,) = (field for field in responses.fields if field.name == "partition_responses")
    since = {field.name: parse_versions(field.versions).start for field in (*responses.fields, *rows.fields)}
    return ProduceVersions(
        FIRST_PRODUCE_VERSION_OF_BATCHES,
        LAST_VERSION,
        parse_versions(request.flexible).start,
        since["topic_id"],
        since["log_append_time_ms"],
        since["log_start_offset"],
        since["record_errors"],
    )


FAST_PRODUCE = FastProduce(INTERNAL_TOPICS, SystemClock, versions(), handle_produce)
HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.PRODUCE, FIRST_VERSION, LAST_VERSION, handle_produce, direct=FAST_PRODUCE),
)
