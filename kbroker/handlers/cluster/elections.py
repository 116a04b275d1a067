"""ElectLeaders (API 43): v0-v2.

Elects leaders of partitions: the preferred one (the first replica), or, unclean, any that is alive where there is
none.  Null topics mean all partitions.

- v0 has no election type: preferred.  A type other than these two is INVALID_REQUEST, for the request and for each
  partition.
- With null topics only partitions whose leader was elected have a row; every topic has one, as in Kafka.
- v1+: an error for the whole request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.requests import ElectionType, PartitionOutcome
from kbroker.errors import ErrorCode, KafkaError, RequestTimedOutError
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

    ReplicaElectionResult = wire.ElectLeadersResponse.ReplicaElectionResult
    PartitionResult = wire.ElectLeadersResponse.PartitionResult

TYPES_FROM = schema("ElectLeadersRequest").first_version("election_type")


async def handle_elect_leaders(ctx: RequestContext, request: wire.ElectLeadersRequest) -> Struct:
    """ElectLeaders v0-v2; see the module's docstring."""
    response = wire.ElectLeadersResponse
    pace = ctx.services.slices.pace()
    wanted = None if request.topic_partitions is None else await _named(request, pace)
    try:
        require_cluster(ctx, Operation.ALTER)
    except KafkaError as error:
        return await _refused(ctx, error, request, pace)
    try:
        election = ElectionType(request.election_type if ctx.api_version >= TYPES_FROM else ElectionType.PREFERRED)
    except ValueError:
        unknown = KafkaError.of(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        if _names_none(request):
            return response()
        return await _refused(ctx, unknown, request, pace)
    try:
        if request.timeout_ms <= 0 and not _names_none(request):
            # A timeout of 0 or less expires before anything is done, as in Kafka's controller.
            raise RequestTimedOutError()
        await ctx.services.administration.ready(request.timeout_ms)
        outcomes = await ctx.services.administration.elect_leaders(election, wanted)
    except KafkaError as error:
        return await _refused(ctx, error, request, pace)
    if wanted is not None:
        return response(replica_election_results=await _results_as_asked(request, outcomes, pace))
    results = await _results(outcomes, pace)
    shown = {row.topic for row in results}
    for name in ctx.services.metadata_cache.image.topics:
        await pace
        if name not in shown:
            results.append(response.ReplicaElectionResult(topic=name))
    return response(replica_election_results=results)


def _names_none(request: wire.ElectLeadersRequest) -> bool:
    """Whether a request asks for no topic at all, and not for all of them."""
    return request.topic_partitions is not None and not request.topic_partitions


async def _refused(ctx: RequestContext, error: KafkaError, request: wire.ElectLeadersRequest, pace: Pace) -> Struct:
    response = wire.ElectLeadersResponse
    results = []
    for topic in request.topic_partitions or ():
        rows = []
        for index in topic.partitions:
            await pace
            rows.append(_row(index, error))
        results.append(response.ReplicaElectionResult(topic=topic.topic, partition_result=rows))
    # v0 has no error of the whole.
    code = error.code if ctx.api_version >= TYPES_FROM else ErrorCode.NONE
    return response(error_code=code, replica_election_results=results)


async def _named(request: wire.ElectLeadersRequest, pace: Pace) -> list[TopicPartition]:
    wanted = []
    for topic in request.topic_partitions or ():
        await pace
        for index in topic.partitions:
            await pace
            wanted.append(TopicPartition(topic.topic, index))
    return wanted


def _row(partition: int, error: KafkaError | None) -> PartitionResult:
    row = wire.ElectLeadersResponse.PartitionResult(partition_id=partition, error_message=None)
    if error is not None:
        row.error_code, row.error_message = error.code, error.message
    return row


async def _results_as_asked(
    request: wire.ElectLeadersRequest, outcomes: Iterable[PartitionOutcome], pace: Pace
) -> list[ReplicaElectionResult]:
    """A row for each that the request has, also for a topic without partitions."""
    errors: dict[TopicPartition, KafkaError | None] = {}
    for outcome in outcomes:
        await pace
        errors[outcome.partition] = outcome.error
    results = []
    for topic in request.topic_partitions or ():
        rows = []
        for index in topic.partitions:
            await pace
            key = TopicPartition(topic.topic, index)
            if key in errors:
                rows.append(_row(index, errors[key]))
        results.append(wire.ElectLeadersResponse.ReplicaElectionResult(topic=topic.topic, partition_result=rows))
    return results


async def _results(outcomes: Iterable[PartitionOutcome], pace: Pace) -> list[ReplicaElectionResult]:
    """What became of all partitions, by topics."""
    response = wire.ElectLeadersResponse
    results: list[ReplicaElectionResult] = []
    for outcome in outcomes:
        await pace
        name = outcome.partition
        row = _row(name.partition, outcome.error)
        if not results or results[-1].topic != name.topic:
            results.append(response.ReplicaElectionResult(topic=name.topic))
        results[-1].partition_result.append(row)
    return results


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.ELECT_LEADERS, 0, 2, handle_elect_leaders),)
