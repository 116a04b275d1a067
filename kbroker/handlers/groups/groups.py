"""Members and administration of groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups,
ListGroups, DeleteGroups.

FindCoordinator v0-v6: the node that leads the partition of a group's state, or of a transactional id's; v1 names the
    kind of key, v4 asks for several at once.
    The state topic is made if need be, so the answer is never "not yet".  v6 asks for the coordinator of a
    share-partition, too.
JoinGroup v0-v9: waits until the generation forms.  v0 has no rebalance timeout: the session timeout stands for it.
    v4+ without a member id is sent back with one (MEMBER_ID_REQUIRED), v5 brings static members, v9 skip_assignment.
SyncGroup v0-v5: waits for the leader's assignment.  v5 must name protocol type and name.
Heartbeat v0-v4, v3+ with a group instance id.
LeaveGroup v0-v5: one member up to v2, its error on top; several from v3, each with its own.
DescribeGroups v0-v6: a group that does not exist is Dead; v6 says GROUP_ID_NOT_FOUND as well.
ListGroups v0-v5: v4 filters by state, v5 by type.
DeleteGroups v0-v2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.classic.messages import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.runtime.coordinator_lookup import coordinator_node
from kbroker.coordinator.share.share_coordinator import check_share_key
from kbroker.errors import ErrorCode, GroupIdNotFoundError, KafkaError
from kbroker.gate.access import may, may_cluster, may_group, require_cluster, require_group, require_transactional_id
from kbroker.handlers.cluster.endpoints import endpoint_for
from kbroker.handlers.groups.committed_state import StateAnswer, ensure_group_topic, when_committed
from kbroker.handlers.security.authorized_operations import NOT_REQUESTED, group_operations
from kbroker.handlers.share.share_offsets import delete_share_group
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2
# First versions of fields and rules.  The last three show in no field: KIP-932, KIP-394 and KIP-1043.
_KEYS_FROM = schema("FindCoordinatorRequest").first_version("coordinator_keys")
_REBALANCE_TIMEOUT_FROM = schema("JoinGroupRequest").first_version("rebalance_timeout_ms")
_SKIPPED_ASSIGNMENT_FROM = schema("JoinGroupResponse").first_version("skip_assignment")
_NULL_PROTOCOL_FROM = schema("JoinGroupResponse").first_version("protocol_type")
_SYNC_PROTOCOL_FROM = schema("SyncGroupRequest").first_version("protocol_type")
_LEAVING_MEMBERS_FROM = schema("LeaveGroupRequest").first_version("members")
_SHARE_KEY_FROM = 6
_KNOWN_MEMBER_ID_FROM = 4
_GROUP_ID_NOT_FOUND_FROM = 6
_STATE_TOPICS = {
    _GROUP_KEY: GROUP_METADATA_TOPIC,
    _TRANSACTION_KEY: TRANSACTION_STATE_TOPIC,
    _SHARE_KEY: SHARE_GROUP_STATE_TOPIC,
}
_NO_NODE = -1
# Errors that Kafka answers without a message from FindCoordinator v4 on.
_UNEXPLAINED = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# What Kafka takes away from around the name of a state, though not of a type.
_BLANKS = "".join(map(chr, range(0x21)))
# Members that leave at a time.
PORTION = 250


# FindCoordinator


async def handle_find_coordinator(ctx: RequestContext, request: wire.FindCoordinatorRequest) -> Struct:
    """FindCoordinator v0-v6."""
    response = wire.FindCoordinatorResponse
    if ctx.api_version >= _KEYS_FROM:
        pace = ctx.services.slices.pace()
        coordinators = []
        for key in request.coordinator_keys:
            await pace
            coordinators.append(await _coordinator(ctx, request.key_type, key))
        return response(coordinators=coordinators)
    found = await _coordinator(ctx, request.key_type, request.key)
    return response(
        error_code=found.error_code,
        # Kafka's answer has the name of the code here, NONE; in v4+ the message is empty.
        error_message=found.error_message if found.error_code else "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _coordinator(ctx: RequestContext, key_type: int, key: str) -> wire.FindCoordinatorResponse.Coordinator:
    coordinator = wire.FindCoordinatorResponse.Coordinator
    try:
        _check_key_type(ctx, key_type)
        _require_key(ctx, key_type, key)
        topic = _STATE_TOPICS[key_type]
        if key_type == _SHARE_KEY:
            check_share_key(key)
        try:
            await ctx.services.controller.ensure_internal_topic(topic)
        except KafkaError as error:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
    except KafkaError as error:
        code = error.code
        text = "" if ctx.api_version >= _KEYS_FROM and code in _UNEXPLAINED else str(error)
        return coordinator(key=key, error_code=code, error_message=text, node_id=_NO_NODE, port=-1)
    image = ctx.services.metadata_cache.image
    node_id = coordinator_node(image, topic, key)
    broker = image.brokers.get(node_id)
    endpoint = None if broker is None or broker.is_fenced else endpoint_for(ctx, broker)
    if endpoint is None:
        return coordinator(
            key=key,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="The coordinator is not available.",
            node_id=_NO_NODE,
            port=-1,
        )
    return coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)


def _check_key_type(ctx: RequestContext, key_type: int) -> None:
    if key_type in (_GROUP_KEY, _TRANSACTION_KEY) or (key_type == _SHARE_KEY and ctx.api_version >= _SHARE_KEY_FROM):
        return
    if key_type == _SHARE_KEY:
        # Kafka has no words for it.
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "")
    raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"Coordinator key type {key_type} is not known.")


def _require_key(ctx: RequestContext, key_type: int, key: str) -> None:
    if key_type == _GROUP_KEY:
        require_group(ctx, Operation.DESCRIBE, key)
    elif key_type == _TRANSACTION_KEY:
        require_transactional_id(ctx, Operation.DESCRIBE, key)
    else:
        # Share-partitions are the brokers' own affair.
        require_cluster(ctx, Operation.CLUSTER_ACTION)


# JoinGroup


async def handle_join_group(ctx: RequestContext, request: wire.JoinGroupRequest) -> Struct | Pending:
    """JoinGroup v0-v9."""
    version = ctx.api_version
    if not may_group(ctx, Operation.READ, request.group_id):
        return _join_response(version, JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, ""))
    await ensure_group_topic(ctx)
    if not ctx.services.group_coordinator.can_store([len(protocol.metadata) for protocol in request.protocols]):
        return _join_response(version, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id))
    pace = ctx.services.slices.pace()
    protocols = []
    for protocol in request.protocols:
        await pace
        protocols.append(MemberProtocol(protocol.name, bytes(protocol.metadata)))
    reply = StateAnswer(ctx.services, in_next_turn=True)
    ctx.services.group_coordinator.join(
        JoinRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            ctx.client_id or "",
            f"/{ctx.connection.peer_host}",
            request.session_timeout_ms,
            # v0 has no field for it, and its default would end every rebalance at once.
            request.rebalance_timeout_ms if version >= _REBALANCE_TIMEOUT_FROM else request.session_timeout_ms,
            request.protocol_type,
            tuple(protocols),
            request.reason,
            requires_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
            supports_skipping_assignment=version >= _SKIPPED_ASSIGNMENT_FROM,
        ),
        lambda result: reply.give(
            _join_response(version, result),
            lambda code: _join_response(version, JoinResult(code, result.member_id)),
        ),
    )
    return reply


def _join_response(version: int, result: JoinResult) -> Struct:
    response = wire.JoinGroupResponse
    protocol_name = result.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_FROM:
        protocol_name = ""
    return response(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            response.JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )


# SyncGroup


def handle_sync_group(ctx: RequestContext, request: wire.SyncGroupRequest) -> Struct | Pending:
    """SyncGroup v0-v5."""
    if ctx.api_version >= _SYNC_PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return _sync_response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not may_group(ctx, Operation.READ, request.group_id):
        return _sync_response(SyncResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    reply = StateAnswer(ctx.services, in_next_turn=True)
    ctx.services.group_coordinator.sync(
        SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
        ),
        lambda result: reply.give(_sync_response(result), lambda code: _sync_response(SyncResult(code))),
    )
    return reply


def _sync_response(result: SyncResult) -> Struct:
    return wire.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


# Heartbeat


def handle_heartbeat(ctx: RequestContext, request: wire.HeartbeatRequest) -> Struct:
    """Heartbeat v0-v4."""
    try:
        require_group(ctx, Operation.READ, request.group_id)
        code = ctx.services.group_coordinator.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except KafkaError as error:
        code = error.code
    return wire.HeartbeatResponse(error_code=code)


# LeaveGroup


async def handle_leave_group(ctx: RequestContext, request: wire.LeaveGroupRequest) -> wire.LeaveGroupResponse:
    """LeaveGroup v0-v5."""
    response = wire.LeaveGroupResponse
    pace = ctx.services.slices.pace()
    if ctx.api_version < _LEAVING_MEMBERS_FROM:
        leaving = [LeavingMember(request.member_id)]
    else:
        leaving = []
        for each in request.members:
            await pace
            leaving.append(LeavingMember(each.member_id, each.group_instance_id, each.reason))
    results: list[LeaveResult] = []
    try:
        require_group(ctx, Operation.READ, request.group_id)
        for start in range(0, max(1, len(leaving)), PORTION):
            await pace
            results += ctx.services.group_coordinator.leave(request.group_id, leaving[start : start + PORTION])
    except KafkaError as error:
        return response(error_code=error.code)
    if ctx.api_version < _LEAVING_MEMBERS_FROM:
        return response(error_code=results[0].error)
    members = []
    for member_id, instance_id, code in results:
        await pace
        members.append(response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code))
    return response(members=members)


# DescribeGroups, ListGroups, DeleteGroups


async def handle_describe_groups(ctx: RequestContext, request: wire.DescribeGroupsRequest) -> Struct:
    """DescribeGroups v0-v6."""
    with_operations = request.include_authorized_operations
    pace = ctx.services.slices.pace()
    groups = []
    for group_id in request.groups:
        await pace
        operations = group_operations(ctx, group_id) if with_operations else NOT_REQUESTED
        groups.append(_described(ctx, group_id, operations))
    return wire.DescribeGroupsResponse(groups=groups)


def _described(ctx: RequestContext, group_id: str, operations: int) -> wire.DescribeGroupsResponse.DescribedGroup:
    response = wire.DescribeGroupsResponse
    try:
        require_group(ctx, Operation.DESCRIBE, group_id)
        group = ctx.services.group_coordinator.describe(group_id)
    except GroupIdNotFoundError as error:
        # Before v6 the state alone says it.
        if ctx.api_version < _GROUP_ID_NOT_FOUND_FROM:
            return response.DescribedGroup(group_id=group_id, group_state="Dead", authorized_operations=operations)
        return response.DescribedGroup(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="Dead",
        )
    except KafkaError as error:
        return response.DescribedGroup(error_code=error.code, group_id=group_id)
    return response.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=[
            response.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations,
    )


async def handle_list_groups(ctx: RequestContext, request: wire.ListGroupsRequest) -> Struct:
    """ListGroups v0-v5."""
    response = wire.ListGroupsResponse
    pace = ctx.services.slices.pace()
    states = await _words(request.states_filter, pace, _BLANKS)
    types = await _words(request.types_filter, pace)
    try:
        groups = ctx.services.group_coordinator.list_groups(states, types)
    except KafkaError as error:
        return response(error_code=error.code)
    sees_all = may_cluster(ctx, Operation.DESCRIBE, quietly=True)
    listed = []
    for group_id, protocol_type, state, group_type in groups:
        await pace
        if not sees_all and not may(ctx, Operation.DESCRIBE, ResourceKind.GROUP, group_id, quietly=True):
            continue
        listed.append(
            response.ListedGroup(
                group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type
            )
        )
    return response(groups=listed)


async def _words(names: Iterable[str], pace: Pace, around: str | None = None) -> set[str]:
    """The names of a filter in small letters, without what is `around` them."""
    words = set()
    for name in names:
        await pace
        words.add((name if around is None else name.strip(around)).lower())
    return words


async def handle_delete_groups(ctx: RequestContext, request: wire.DeleteGroupsRequest) -> wire.DeleteGroupsResponse:
    """DeleteGroups v0-v2."""
    delete: Callable[[str], None] = ctx.services.group_coordinator.delete_group
    response = wire.DeleteGroupsResponse
    pace = ctx.services.slices.pace()
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        await pace
        try:
            require_group(ctx, Operation.DELETE, group_id)
            code = await delete_share_group(ctx, group_id)
            if code == ErrorCode.NONE:
                delete(group_id)
        except KafkaError as error:
            code = error.code
        results.append(response.DeletableGroupResult(group_id=group_id, error_code=code))
    return response(results=results)


def _refused_deletions(answer: wire.DeleteGroupsResponse, code: ErrorCode) -> wire.DeleteGroupsResponse:
    """Those that were made, and are not committed."""
    for result in answer.results:
        result.error_code = result.error_code or code
    return answer


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.FIND_COORDINATOR, 0, 6, handle_find_coordinator),
    Handler(ApiKey.JOIN_GROUP, 0, 9, handle_join_group),
    Handler(ApiKey.HEARTBEAT, 0, 4, handle_heartbeat),
    Handler(ApiKey.LEAVE_GROUP, 0, 5, when_committed(handle_leave_group)),
    Handler(ApiKey.SYNC_GROUP, 0, 5, handle_sync_group),
    Handler(ApiKey.DESCRIBE_GROUPS, 0, 6, handle_describe_groups),
    Handler(ApiKey.LIST_GROUPS, 0, 5, handle_list_groups),
    Handler(ApiKey.DELETE_GROUPS, 0, 2, when_committed(handle_delete_groups, _refused_deletions)),
)
