"""What a controller sends to brokers: LeaderAndIsr (API 4): v0-v7, StopReplica (5): v0-v4, UpdateMetadata (6): v0-v8.

Served by a broker that is a member of a cluster, and advertised by it alone.  A connection's requests are carried out
one after the other, so each controller's word is taken in the order in which it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.cluster.metadata_updates import MetadataUpdate
from kbroker.cluster.protocol_version import (
    LISTENER_NAMES_IN_UPDATE,
    STATES_IN_STOP,
    TOPIC_IDS_IN_LEADER_AND_ISR_ANSWER,
    TOPICS_IN_LEADER_AND_ISR,
    TOPICS_IN_UPDATE,
)
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.image import BrokerImage, Endpoint, PartitionImage
from kbroker.protocol.api import ApiKey
from kbroker.replication.leader_and_isr import ReplicaState, ReplicaStop, Sender
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.leader_and_isr import ControllerRequests

    FromController = wire.LeaderAndIsrRequest | wire.StopReplicaRequest | wire.UpdateMetadataRequest

# Listener names for the versions that send only the number of the security protocol.
PROTOCOL_NAMES = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def _requests(ctx: RequestContext) -> ControllerRequests:
    found = ctx.services.controller_requests
    assert found is not None, "only a broker with a controller that sends requests has these APIs"
    return found


def _sender(request: FromController) -> Sender:
    return Sender(request.controller_id, request.controller_epoch, request.broker_epoch)


# -- LeaderAndIsr -----------------------------------------------------------------------------------------------------


async def handle_leader_and_isr(ctx: RequestContext, request: wire.LeaderAndIsrRequest) -> Struct:
    """LeaderAndIsr v0-v7; see `replication.leader_and_isr`."""
    states = list(_states(request, ctx.api_version))
    leaders = {each.broker_id: Endpoint(each.host_name, each.port) for each in request.live_leaders}
    response = wire.LeaderAndIsrResponse
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        codes = await _requests(ctx).leader_and_isr(_sender(request), states, leaders, ctx.services.slices.pace())
    except KafkaError as error:
        return response(error_code=error.code)
    rows: dict[tuple[str, bytes], list[wire.LeaderAndIsrResponse.LeaderAndIsrPartitionError]] = {}
    for state, code in zip(states, codes, strict=True):
        row = response.LeaderAndIsrPartitionError(
            topic_name=state.topic, partition_index=state.image.partition, error_code=code
        )
        rows.setdefault((state.topic, state.topic_id), []).append(row)
    if ctx.api_version < TOPIC_IDS_IN_LEADER_AND_ISR_ANSWER:
        return response(partition_errors=[row for each in rows.values() for row in each])
    return response(
        topics=[
            response.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=each)
            for (_, topic_id), each in rows.items()
        ]
    )


def _states(request: wire.LeaderAndIsrRequest, version: int) -> Iterator[ReplicaState]:
    if version < TOPICS_IN_LEADER_AND_ISR:
        for row in request.ungrouped_partition_states:
            yield ReplicaState(row.topic_name, ZERO_UUID, _assigned(row), row.is_new)
        return
    for topic in request.topic_states:
        for row in topic.partition_states:
            yield ReplicaState(topic.topic_name, topic.topic_id, _assigned(row), row.is_new)


def _assigned(row: wire.LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> PartitionImage:
    return PartitionImage(
        partition=row.partition_index,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        replicas=tuple(row.replicas),
        isr=tuple(row.isr),
        partition_epoch=row.partition_epoch,
        adding_replicas=tuple(row.adding_replicas),
        removing_replicas=tuple(row.removing_replicas),
    )


# -- StopReplica ------------------------------------------------------------------------------------------------------


async def handle_stop_replica(ctx: RequestContext, request: wire.StopReplicaRequest) -> Struct:
    """StopReplica v0-v4; see `replication.leader_and_isr`."""
    stops = list(_stops(request, ctx.api_version))
    response = wire.StopReplicaResponse
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        codes = await _requests(ctx).stop_replicas(_sender(request), stops, ctx.services.slices.pace())
    except KafkaError as error:
        return response(error_code=error.code)
    return response(
        partition_errors=[
            response.StopReplicaPartitionError(
                topic_name=stop.partition.topic, partition_index=stop.partition.partition, error_code=code
            )
            for stop, code in zip(stops, codes, strict=True)
        ]
    )


def _stops(request: wire.StopReplicaRequest, version: int) -> Iterator[ReplicaStop]:
    if version >= STATES_IN_STOP:
        for state in request.topic_states:
            for row in state.partition_states:
                name = TopicPartition(state.topic_name, row.partition_index)
                yield ReplicaStop(name, LeaderEpoch(row.leader_epoch), row.delete_partition)
        return
    for named in _named(request, version):
        yield ReplicaStop(named, NO_LEADER_EPOCH, request.delete_partitions)


def _named(request: wire.StopReplicaRequest, version: int) -> Iterable[TopicPartition]:
    if version == 0:
        return [TopicPartition(row.topic_name, row.partition_index) for row in request.ungrouped_partitions]
    return [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


# -- UpdateMetadata ---------------------------------------------------------------------------------------------------


async def handle_update_metadata(ctx: RequestContext, request: wire.UpdateMetadataRequest) -> Struct:
    """UpdateMetadata v0-v8; see `cluster.metadata_updates`."""
    topics: dict[tuple[str, bytes], list[PartitionImage]] = {}
    if ctx.api_version < TOPICS_IN_UPDATE:
        for row in request.ungrouped_partition_states:
            topics.setdefault((row.topic_name, ZERO_UUID), []).append(_described(row))
    else:
        for topic in request.topic_states:
            rows = topics.setdefault((topic.topic_name, topic.topic_id), [])
            rows += [_described(row) for row in topic.partition_states]
    brokers = [_broker(row, ctx.api_version) for row in request.live_brokers]
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        update = MetadataUpdate(request.controller_id, brokers, topics)
        await _requests(ctx).update_metadata(_sender(request), update, ctx.services.slices.pace())
    except KafkaError as error:
        return wire.UpdateMetadataResponse(error_code=error.code)
    return wire.UpdateMetadataResponse(error_code=ErrorCode.NONE)


def _described(row: wire.UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        partition=row.partition_index,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        replicas=tuple(row.replicas),
        isr=tuple(row.isr),
        partition_epoch=row.zk_version,
        offline_replicas=tuple(row.offline_replicas),
    )


def _broker(row: wire.UpdateMetadataRequest.UpdateMetadataBroker, version: int) -> BrokerImage:
    if version == 0:
        return BrokerImage(row.id, {PROTOCOL_NAMES[0]: Endpoint(row.v0_host, row.v0_port)})
    named = {
        each.listener
        if version >= LISTENER_NAMES_IN_UPDATE
        else PROTOCOL_NAMES.get(each.security_protocol, PROTOCOL_NAMES[0]): Endpoint(each.host, each.port)
        for each in row.endpoints
    }
    return BrokerImage(row.id, named, row.rack)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.LEADER_AND_ISR, 0, 7, handle_leader_and_isr),
    Handler(ApiKey.STOP_REPLICA, 0, 4, handle_stop_replica),
    Handler(ApiKey.UPDATE_METADATA, 0, 8, handle_update_metadata),
)
