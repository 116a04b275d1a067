"""What a controller answers otherwise than a broker: DescribeCluster (API 60) v0-v2, DescribeDelegationToken (41)
v1-v3, DescribeUserScramCredentials (50) v0; and the table of all that it serves.

DescribeCluster shows the registered controllers that have an endpoint on the client's listener, and needs ALTER on the
cluster.  A controller that leads and has not registered is not named.  The other two are advertised and answered with
UNKNOWN_SERVER_ERROR, as by Kafka's controllers: brokers answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kbroker.cluster.controller.broker_lives import wrong_controller
from kbroker.cluster.raft.service import SERVED
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster
from kbroker.handlers.cluster.cluster_view import ClusterView
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.raft.envelope import Envelopes
from kbroker.handlers.raft.quorum import refused
from kbroker.handlers.security.authorized_operations import NOT_REQUESTED, cluster_operations
from kbroker.handlers.security.delegation_tokens import may_ask
from kbroker.handlers.table import Handler
from kbroker.metadata.features import CONTROLLERS_REGISTER_FROM, METADATA_VERSION
from kbroker.metadata.image import NO_CONTROLLER
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.gate.gate import Gatekeeper
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import Handled, HandlerFunction
    from kbroker.protocol.messages import Message

BROKERS, CONTROLLERS = 1, 2
_TYPES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}

APIS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    **SERVED,
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
}
"""Kafka 4.3's APIs of a controller's listener, with their first and last versions; and Envelope 0."""


class ControllerView(ClusterView):
    """Of a node that has the controller role, at that role's listeners."""

    changes_every_broker = True


def served_by_controllers(
    rows: Iterable[Handler], gatekeeper: Gatekeeper | None, is_active: Callable[[], bool]
) -> tuple[Handler, ...]:
    """Of these rows the APIs and versions that a controller serves, and the row of Envelope.  Of two rows of an API the
    second counts.  `is_active`: whether this node's controller decides by now."""
    found: dict[ApiKey, Handler] = {}
    for row in rows:
        api_key = ApiKey(row.api_key)
        if api_key in APIS:
            low, high = APIS[api_key]
            handle = by_active(row.handle, _ALLOWED[api_key], is_active) if api_key in _ALLOWED else row.handle
            found[api_key] = replace(row, min_version=low, max_version=high, handle=handle, advertised_min_version=None)
    missing = [each.name for each in APIS if each not in found]
    assert not missing, missing
    return (*found.values(), Envelopes(found.values(), gatekeeper).row())


def by_active(
    own: HandlerFunction, allowed: Callable[[RequestContext], bool], is_active: Callable[[], bool]
) -> HandlerFunction:
    """A handler that refuses for a node whose controller does not decide, as the node's image may be behind.  A client
    that is not allowed what it asks for is refused by `own`, as at any other node."""

    def handle(ctx: RequestContext, request: Message) -> Handled:
        if is_active() or not allowed(ctx):
            return own(ctx, request)
        return refusal(request, ctx.api_version, wrong_controller(ctx.services.raft.leader_id))

    return handle


def _may(operation: Operation) -> Callable[[RequestContext], bool]:
    return lambda ctx: may_cluster(ctx, operation)


def _may_alter_acls(ctx: RequestContext) -> bool:
    return ctx.services.authorizer is not None and may_cluster(ctx, Operation.ALTER)


_ALTERS, _ACTS = _may(Operation.ALTER), _may(Operation.CLUSTER_ACTION)
_ALLOWED: Final[Mapping[ApiKey, Callable[[RequestContext], bool]]] = {
    ApiKey.CREATE_TOPICS: lambda _: True,
    ApiKey.DELETE_TOPICS: lambda _: True,
    ApiKey.CREATE_PARTITIONS: lambda _: True,
    ApiKey.CREATE_ACLS: _may_alter_acls,
    ApiKey.DELETE_ACLS: _may_alter_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: may_ask,
    ApiKey.RENEW_DELEGATION_TOKEN: may_ask,
    ApiKey.EXPIRE_DELEGATION_TOKEN: may_ask,
    ApiKey.ELECT_LEADERS: _ALTERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTERS,
    ApiKey.ALTER_CLIENT_QUOTAS: _may(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTERS,
    ApiKey.UPDATE_FEATURES: _ALTERS,
    ApiKey.UNREGISTER_BROKER: _ALTERS,
    ApiKey.ALTER_PARTITION: _ACTS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _ACTS,
    ApiKey.BROKER_REGISTRATION: _ACTS,
    ApiKey.BROKER_HEARTBEAT: _ACTS,
    ApiKey.CONTROLLER_REGISTRATION: _ACTS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _ACTS,
}
"""What the active controller alone serves, and whether a client may ask for it.  Rights on topics are looked at later;
settings are not here, as any controller changes its own loggers."""


def handle_describe_cluster(ctx: RequestContext, request: wire.DescribeClusterRequest) -> Struct:
    """DescribeCluster v0-v2; see the module's docstring."""
    response = wire.DescribeClusterResponse
    image = ctx.services.metadata_cache.image
    if image.features.level(METADATA_VERSION) < CONTROLLERS_REGISTER_FROM:
        text = "Direct-to-controller communication is not supported with the current MetadataVersion."
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text)
    denial = refused(ctx, request, Operation.ALTER)
    if denial is not None:
        return denial
    if request.endpoint_type != CONTROLLERS:
        return _wrong_type(ctx.api_version, request.endpoint_type)
    listener = ctx.connection.listener_name
    shown = [
        response.DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, controller in sorted(image.controllers.items())
        if (endpoint := controller.endpoints.get(listener)) is not None
    ]
    leader = ctx.services.raft.leader_id
    return response(
        endpoint_type=CONTROLLERS,
        cluster_id=image.cluster_id,
        controller_id=leader if any(each.broker_id == leader for each in shown) else NO_CONTROLLER,
        brokers=shown,
        cluster_authorized_operations=_operations(ctx, request),
    )


def _operations(ctx: RequestContext, request: wire.DescribeClusterRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    return cluster_operations(ctx) if may_cluster(ctx, Operation.DESCRIBE) else 0


def _wrong_type(version: int, wanted: int) -> Struct:
    """Of v0, which has no types, brokers are wanted."""
    response = wire.DescribeClusterResponse
    if wanted not in _TYPES:
        text = f"Unsupported endpoint type {wanted}"
        return response(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=text)
    code = ErrorCode.INVALID_REQUEST if version == 0 else ErrorCode.MISMATCHED_ENDPOINT_TYPE
    text = (
        f"The request was sent to an endpoint of type {_TYPES[CONTROLLERS]}, but we wanted an endpoint of type "
        f"{_TYPES[wanted]}"
    )
    return response(error_code=code, error_message=text)


def handle_at_brokers(ctx: RequestContext, request: Message) -> Struct:
    """DescribeDelegationToken, DescribeUserScramCredentials."""
    return refusal(request, ctx.api_version, KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR))


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_CLUSTER, 0, 2, handle_describe_cluster),
    Handler(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, handle_at_brokers),
    Handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, handle_at_brokers),
)
