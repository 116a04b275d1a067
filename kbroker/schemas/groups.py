"""Classic groups: find the coordinator, join, sync, heartbeat, leave, describe, list, delete."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MIN, F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(10, "FindCoordinator", "0-6", "3+").of(
        F("key", "string", "0-3"),
        F("key_type", "int8", "1+"),
        F("coordinator_keys", "[]string", "4+"),
    ),
    response(10, "FindCoordinator", "0-6", "3+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0-3"),
        F("error_message", "string", "1-3", nullable="1-3", ignorable=True),
        F("node_id", "int32", "0-3"),
        F("host", "string", "0-3"),
        F("port", "int32", "0-3"),
        F("coordinators", "[]Coordinator", "4+").of(
            F("key", "string", "4+"),
            F("node_id", "int32", "4+"),
            F("host", "string", "4+"),
            F("port", "int32", "4+"),
            F("error_code", "int16", "4+"),
            F("error_message", "string", "4+", nullable="4+", ignorable=True),
        ),
    ),
    request(11, "JoinGroup", "0-9", "6+").of(
        F("group_id", "string", "0+"),
        F("session_timeout_ms", "int32", "0+"),
        F("rebalance_timeout_ms", "int32", "1+", default=-1, ignorable=True),
        F("member_id", "string", "0+"),
        F("group_instance_id", "string", "5+", nullable="5+", default=None),
        F("protocol_type", "string", "0+"),
        F("protocols", "[]JoinGroupRequestProtocol", "0+").of(
            F("name", "string", "0+"),
            F("metadata", "bytes", "0+"),
        ),
        F("reason", "string", "8+", nullable="8+", default=None, ignorable=True),
    ),
    response(11, "JoinGroup", "0-9", "6+").of(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("generation_id", "int32", "0+", default=-1),
        F("protocol_type", "string", "7+", nullable="7+", default=None, ignorable=True),
        F("protocol_name", "string", "0+", nullable="7+"),
        F("leader", "string", "0+"),
        F("skip_assignment", "bool", "9+"),
        F("member_id", "string", "0+"),
        F("members", "[]JoinGroupResponseMember", "0+").of(
            F("member_id", "string", "0+"),
            F("group_instance_id", "string", "5+", nullable="5+", default=None, ignorable=True),
            F("metadata", "bytes", "0+"),
        ),
    ),
    request(14, "SyncGroup", "0-5", "4+").of(
        F("group_id", "string", "0+"),
        F("generation_id", "int32", "0+"),
        F("member_id", "string", "0+"),
        F("group_instance_id", "string", "3+", nullable="3+", default=None),
        F("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("assignments", "[]SyncGroupRequestAssignment", "0+").of(
            F("member_id", "string", "0+"),
            F("assignment", "bytes", "0+"),
        ),
    ),
    response(14, "SyncGroup", "0-5", "4+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("assignment", "bytes", "0+"),
    ),
    request(12, "Heartbeat", "0-4", "4+").of(
        F("group_id", "string", "0+"),
        F("generation_id", "int32", "0+"),
        F("member_id", "string", "0+"),
        F("group_instance_id", "string", "3+", nullable="3+", default=None),
    ),
    response(12, "Heartbeat", "0-4", "4+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
    ),
    request(13, "LeaveGroup", "0-5", "4+").of(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0-2"),
        F("members", "[]MemberIdentity", "3+").of(
            F("member_id", "string", "3+"),
            F("group_instance_id", "string", "3+", nullable="3+", default=None),
            F("reason", "string", "5+", nullable="5+", default=None, ignorable=True),
        ),
    ),
    response(13, "LeaveGroup", "0-5", "4+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("members", "[]MemberResponse", "3+").of(
            F("member_id", "string", "3+"),
            F("group_instance_id", "string", "3+", nullable="3+"),
            F("error_code", "int16", "3+"),
        ),
    ),
    request(15, "DescribeGroups", "0-6", "5+").of(
        F("groups", "[]string", "0+"),
        F("include_authorized_operations", "bool", "3+"),
    ),
    response(15, "DescribeGroups", "0-6", "5+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("groups", "[]DescribedGroup", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "6+", nullable="6+", default=None),
            F("group_id", "string", "0+"),
            F("group_state", "string", "0+"),
            F("protocol_type", "string", "0+"),
            F("protocol_data", "string", "0+"),
            F("members", "[]DescribedGroupMember", "0+").of(
                F("member_id", "string", "0+"),
                F("group_instance_id", "string", "4+", nullable="4+", default=None, ignorable=True),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("member_metadata", "bytes", "0+"),
                F("member_assignment", "bytes", "0+"),
            ),
            F("authorized_operations", "int32", "3+", default=INT32_MIN),
        ),
    ),
    request(16, "ListGroups", "0-5", "3+").of(
        F("states_filter", "[]string", "4+"),
        F("types_filter", "[]string", "5+"),
    ),
    response(16, "ListGroups", "0-5", "3+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("groups", "[]ListedGroup", "0+").of(
            F("group_id", "string", "0+"),
            F("protocol_type", "string", "0+"),
            F("group_state", "string", "4+", ignorable=True),
            F("group_type", "string", "5+", ignorable=True),
        ),
    ),
    request(42, "DeleteGroups", "0-2", "2+").of(
        F("groups_names", "[]string", "0+"),
    ),
    response(42, "DeleteGroups", "0-2", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]DeletableGroupResult", "0+").of(
            F("group_id", "string", "0+"),
            F("error_code", "int16", "0+"),
        ),
    ),
)
