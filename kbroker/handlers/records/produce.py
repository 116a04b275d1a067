"""Produce (API 0): append record batches to partitions.

Each partition carries one record batch of magic 2.  It is validated, given its offsets and written in this order while
the request's bytes still lie in the receive buffer, so an uncompressed batch is copied once: from there to the page
cache.  Requests before version 3 carry message sets, which `storage/log/message_set_validator` makes one batch of.
A batch that takes long to decompress is validated by a thread before; the connection waits, others do not.  Several are
appended in slices of the loop's time.  The answer waits until what it acknowledges may be acknowledged (`Partition`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker._fast.net.pending import Pending
from kbroker._fast.net.route import NO_RESPONSE
from kbroker._fast.requests.fast_produce import FastProduce, ProduceVersions
from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode
from kbroker.handlers.records.delayed_produce import Unacknowledged, answer_when_acknowledged
from kbroker.handlers.records.partition_append import ALL_REPLICAS, PartitionAppend, are_valid
from kbroker.handlers.table import Handler
from kbroker.handlers.transactions.transactional_produce import may_write_transactions, verify_batches
from kbroker.log_output import RateLimitedLog
from kbroker.metadata.topic_names import INTERNAL_TOPICS
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.storage.log.message_set_validator import FIRST_PRODUCE_VERSION_OF_BATCHES

if TYPE_CHECKING:
    from kbroker._fast.net.route import NoResponse
    from kbroker._fast.requests.fast_produce import Appended
    from kbroker.handlers.services import RequestContext

    # The answer, what gives it later, what stands for none; None where the connection is closed.
    Produced = wire.ProduceResponse | Pending | NoResponse | None

logger = logging.getLogger("kbroker.produce")
complaints = RateLimitedLog(logger)

ProduceResponse = wire.ProduceResponse
TopicProduceResponse = ProduceResponse.TopicProduceResponse
PartitionProduceResponse = ProduceResponse.PartitionProduceResponse

NO_ACKNOWLEDGEMENT = 0
FIRST_VERSION, LAST_VERSION = 0, 13


async def handle_produce(
    ctx: RequestContext, request: wire.ProduceRequest, appended: Appended | None = None
) -> Produced:
    """Versions 0 to 13; up to v2 with message sets, and the time of an append from v2 on.

    acks=0 gets no answer; when an append fails the connection is closed, the only sign such a producer can see.
    v8 on names the refused records; v13 on names topics by id.  `appended`: for each partition, in the request's order,
    the first and last offset if the fast path has appended its batch.
    """
    pace = ctx.services.slices.pace()
    is_allowed = may_write_transactions(ctx, request)
    before = iter(appended or ())
    # Each is let go of when it was answered, so that very many are not freed at once.
    appends: deque[PartitionAppend] = deque()
    for topic in request.topic_data:
        await pace
        for row in topic.partition_data:
            await pace
            appends.append(PartitionAppend(ctx, request.acks, topic, row, next(before, None)))
    if is_allowed and request.transactional_id is not None and are_valid(request.acks):
        await verify_batches(ctx, request.transactional_id, appends, pace)
    responses: list[TopicProduceResponse] = []
    waits: list[Unacknowledged] = []
    for topic in request.topic_data:
        await pace
        answers: list[PartitionProduceResponse] = []
        for _ in topic.partition_data:
            await pace
            each = appends.popleft()
            answer = each.answer() if is_allowed else each.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if answer is None:
                # One at a time, so that a request holds what one of its batches becomes, however many it has.
                answer = await each.answer_by_thread()
            answers.append(answer)
            if each.unacknowledged is not None:
                waits.append(each.unacknowledged)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return _finish(ctx, request, responses, waits)


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
    request, response = schema("ProduceRequest"), schema("ProduceResponse")
    row = "responses.partition_responses"
    return ProduceVersions(
        first=FIRST_PRODUCE_VERSION_OF_BATCHES,
        last=LAST_VERSION,
        flexible=request.first_flexible_version,
        topic_ids=request.first_version("topic_data.topic_id"),
        log_append_times=response.first_version(f"{row}.log_append_time_ms"),
        log_starts=response.first_version(f"{row}.log_start_offset"),
        record_errors=response.first_version(f"{row}.record_errors"),
    )


FAST_PRODUCE = FastProduce(INTERNAL_TOPICS, SystemClock, versions(), handle_produce)
HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.PRODUCE, FIRST_VERSION, LAST_VERSION, handle_produce, direct=FAST_PRODUCE),
)
