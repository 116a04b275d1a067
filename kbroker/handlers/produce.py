"""Produce (API 0): append record batches to partitions.

Each partition carries one record batch of magic 2.  It is judged, given its offsets and written in this order while the
request's bytes still lie in the receive buffer, so an uncompressed batch is copied once: from there to the page cache.
A batch that takes long to decompress is judged by a thread first; the connection waits, others do not.  Where the
settings ask for an fsync before the answer (`kbroker.fsync=commit`, `flush.messages`) the answer waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbroker._fast.ordinary_produce import OrdinaryProduce
from kbroker._fast.route import NO_RESPONSE
from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode, InvalidTopicError, KafkaError
from kbroker.handlers.produce_commit import ProduceCommit, Unsettled
from kbroker.handlers.table import Handler
from kbroker.log_output import RateLimitedLog
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message
from kbroker.storage.log_validator import (
    LONG_BATCH_BYTES,
    AppendOrigin,
    RecordValidationError,
    UnfitRequestError,
    takes_long,
    validate_and_analyze,
)

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition
    from kbroker.storage.log_validator import AnalyzedBatch

logger = logging.getLogger("kbroker.produce")
complaints = RateLimitedLog(logger)

# The answers, and those of them that wait for the disk.
Appended = tuple[list[Any], list[Unsettled]]

ProduceResponse: Any = message("ProduceResponse")
TopicProduceResponse: Any = ProduceResponse.TopicProduceResponse
PartitionProduceResponse: Any = ProduceResponse.PartitionProduceResponse
BatchIndexAndErrorMessage: Any = ProduceResponse.BatchIndexAndErrorMessage

ALL_REPLICAS = -1
NO_ACKNOWLEDGEMENT = 0
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
ADMIN_CLIENT_ID = "__admin_client"
ORDINARY = OrdinaryProduce(INTERNAL_TOPICS, SystemClock)
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13
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
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def handle_produce(ctx: RequestContext, request: Any) -> Any:
    """Versions 3 to 13 (advertised from 0, see `docs/compatibility.md`).

    acks=0 gets no answer; when an append fails the connection is closed, the only sign such a producer can see.
    v8 on names the refused records; v13 on names topics by id.
    """
    if request.acks not in (0, 1, ALL_REPLICAS):
        return _finish(ctx, request, _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS))
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) >= LONG_BATCH_BYTES and _takes_long(ctx, topic, data):
                task = asyncio.ensure_future(_produce_with_thread(ctx, request))
                task.add_done_callback(lambda done: _finish_thread(ctx, request, done))
                return None
    return _finish(ctx, request, *_append_all(ctx, request, {}))


def _takes_long(ctx: RequestContext, topic: Any, data: Any) -> bool:
    """Whether judging this batch would hold the loop for long; the partition decides, as it may have to recompress."""
    if data.records is None or len(data.records) < LONG_BATCH_BYTES:
        return False
    try:
        return takes_long(data.records, _partition(ctx, topic, data.index).log.config)
    except KafkaError:
        return False


async def _produce_with_thread(ctx: RequestContext, request: Any) -> Appended:
    """Judge the long batches in a thread, one after the other, then append all in order."""
    loop = asyncio.get_running_loop()
    judged: dict[int, AnalyzedBatch | KafkaError] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not _takes_long(ctx, topic, data):
                continue
            try:
                partition = _partition(ctx, topic, data.index)
                judged[id(data)] = await loop.run_in_executor(None, _judge, ctx, partition, data.records)
            except KafkaError as error:
                # Its frames hold the batch: with the traceback in reach of them only the collector would free both.
                judged[id(data)] = error.with_traceback(None)
    return _append_all(ctx, request, judged)


def _finish_thread(ctx: RequestContext, request: Any, task: asyncio.Task[Appended]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        logger.error("a produce request failed", exc_info=error)
    refusal: Appended = (_refuse_all(request, ErrorCode.UNKNOWN_SERVER_ERROR), [])
    response = _finish(ctx, request, *(task.result() if error is None else refusal))
    if response is not None:
        ctx.respond(response)


def _judge(ctx: RequestContext, partition: Partition, records: memoryview) -> AnalyzedBatch:
    return validate_and_analyze(
        records,
        partition.log.config,
        ctx.services.clock.now_ms(),
        topic_partition=partition,
        produce_version=ctx.api_version,
    )


def _append_all(ctx: RequestContext, request: Any, judged: dict[int, AnalyzedBatch | KafkaError]) -> Appended:
    acks_all = request.acks == ALL_REPLICAS
    # A batch that came alone was looked at by `ORDINARY`, if an answer is wanted.
    count = sum(len(topic.partition_data) for topic in request.topic_data)
    looked_at = count == 1 and request.acks != NO_ACKNOWLEDGEMENT
    may_be_ordinary = not looked_at and ctx.api_version >= FIRST_VERSION_WITH_ZSTD
    responses = []
    unsettled: list[Unsettled] = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            try:
                partition = _partition(ctx, topic, data.index)
                if acks_all and len(partition.isr) < partition.min_in_sync:
                    partition.check_in_sync()
                verdict = judged.get(id(data)) if judged else None
                if isinstance(verdict, KafkaError):
                    answers.append(_refuse(ctx, topic, data.index, verdict))
                    continue
                answer = None
                if verdict is None and may_be_ordinary:
                    answer = _append_ordinary(ctx, partition, data)
                if answer is None:
                    answer = _append(ctx, partition, data, verdict, unsettled)
                answers.append(answer)
            except KafkaError as error:
                answers.append(_refuse(ctx, topic, data.index, error))
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return responses, unsettled


def _partition(ctx: RequestContext, topic: Any, index: int) -> Partition:
    manager = ctx.services.replica_manager
    if ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic.name = manager.topic_name(topic.topic_id)
    name = topic.name
    if name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopicError(f"Cannot append to internal topic {name}")
    partition: Partition = manager.partition(name, index)
    return partition


def _append_ordinary(ctx: RequestContext, partition: Partition, data: Any) -> Any | None:
    """One of several batches, in one call into C; None when it is out of the ordinary."""
    services = ctx.services
    first = services.replica_manager.append_ordinary(partition, data.records, services.clock.now_ms())
    if first < 0:
        return None
    return PartitionProduceResponse(
        index=data.index, base_offset=first, log_start_offset=partition.log.log_start_offset
    )


def _append(
    ctx: RequestContext,
    partition: Partition,
    data: Any,
    judged: AnalyzedBatch | None,
    unsettled: list[Unsettled],
) -> Any:
    analyzed = (
        _judge(ctx, partition, data.records if data.records is not None else memoryview(b""))
        if judged is None
        else judged
    )
    if analyzed.info.is_transactional:
        # The one code that every client takes as final; FindCoordinator gives it, too.
        raise KafkaError.of(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this broker"
        )
    result = ctx.services.replica_manager.append(
        partition, analyzed.view, origin=AppendOrigin.CLIENT, analyzed=analyzed
    )
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
    )
    committer = partition.log.committer
    if committer is not None and committer.holds(result.last_offset):
        unsettled.append(Unsettled(committer, result.last_offset, answer))
    return answer


def _refuse(ctx: RequestContext, topic: Any, index: int, error: KafkaError) -> Any:
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


def _refuse_all(request: Any, code: ErrorCode) -> list[Any]:
    return [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]


def _finish(ctx: RequestContext, request: Any, responses: list[Any], unsettled: Sequence[Unsettled] = ()) -> Any:
    """The answer, or None when it waits for the disk.  With acks=0 there is none: a failure closes the connection."""
    if request.acks != NO_ACKNOWLEDGEMENT:
        response = ProduceResponse(responses=responses)
        if unsettled:
            ProduceCommit(ctx, response, unsettled, request.timeout_ms)
            return None
        return response
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                complaints.info(
                    ErrorCode(answer.error_code),
                    "closing the connection of %s: its produce request with acks=0 to %s-%d failed with %s",
                    ctx.client_id,
                    topic.name,
                    answer.index,
                    ErrorCode(answer.error_code).name,
                )
                ctx.connection.close("a produce request with acks=0 failed")
                return None
    return NO_RESPONSE


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.PRODUCE, 3, 13, handle_produce, advertised_min_version=0, direct=ORDINARY),
)
