"""DescribeCluster: v0-v2.  UnregisterBroker (API 64): v0.  DescribeQuorum (API 55): v0-v2.

DescribeCluster: cluster id, controller and the brokers that the client can reach.

- v1+: the type of endpoint that the client wants; only brokers (1) are here: controllers (2) give
  MISMATCHED_ENDPOINT_TYPE, others UNSUPPORTED_ENDPOINT_TYPE.
- v2+: fenced brokers too, when asked for.

UnregisterBroker forgets a broker that does not come back.  The one that is the controller can't be unregistered.

DescribeQuorum: there is no KRaft quorum, so the answer is UNSUPPORTED_VERSION, from v2 on with a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import require_cluster
from kbroker.handlers.cluster.endpoints import brokers_shown, controller_shown, registered_brokers
from kbroker.handlers.security.authorized_operations import NOT_REQUESTED, cluster_operations
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

BROKERS = 1
CONTROLLERS = 2
NO_QUORUM = (
    "kbroker keeps the cluster's metadata in a store of its own, not in a KRaft log: there is no quorum to describe."
)


def handle_describe_cluster(ctx: RequestContext, request: wire.DescribeClusterRequest) -> Struct:
    """DescribeCluster v0-v2; see the module's docstring."""
    response = wire.DescribeClusterResponse
    if request.endpoint_type != BROKERS:
        code, text = _wrong_endpoint(request.endpoint_type)
        return response(error_code=code, error_message=text)
    image = ctx.services.metadata_cache.image
    shown = registered_brokers(ctx, image)
    if not request.include_fenced_brokers:
        shown = brokers_shown(ctx, image, [each for each in shown if not each[0].is_fenced])
    brokers = []
    for broker, endpoint in shown:
        struct = response.DescribeClusterBroker(
            broker_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        if broker.is_fenced:
            struct.is_fenced = True
        brokers.append(struct)
    return response(
        cluster_id=image.cluster_id,
        controller_id=controller_shown(ctx, image, [broker for broker, _ in shown]),
        brokers=brokers,
        cluster_authorized_operations=(
            cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _wrong_endpoint(endpoint_type: int) -> tuple[ErrorCode, str]:
    if endpoint_type == CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"


async def handle_unregister_broker(ctx: RequestContext, request: wire.UnregisterBrokerRequest) -> Struct:
    """UnregisterBroker v0; see the module's docstring."""
    try:
        require_cluster(ctx, Operation.ALTER)
        await ctx.services.administration.unregister_broker(request.broker_id)
    except KafkaError as error:
        return wire.UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return wire.UnregisterBrokerResponse(error_message=None)


def handle_describe_quorum(ctx: RequestContext, request: wire.DescribeQuorumRequest) -> Struct:
    """DescribeQuorum v0-v2; see the module's docstring."""
    try:
        require_cluster(ctx, Operation.DESCRIBE)
    except KafkaError as error:
        return wire.DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    return wire.DescribeQuorumResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_QUORUM)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_CLUSTER, 0, 2, handle_describe_cluster),
    Handler(ApiKey.UNREGISTER_BROKER, 0, 0, handle_unregister_broker),
    Handler(ApiKey.DESCRIBE_QUORUM, 0, 2, handle_describe_quorum),
)
