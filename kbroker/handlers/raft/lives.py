"""BrokerRegistration (API 62): v0-v4.  BrokerHeartbeat (63): v0-v2.  ControllerRegistration (70): v0.
AssignReplicasToDirs (73): v0.

What nodes report of themselves to the active controller.  All need CLUSTER_ACTION.  AlterPartition and
AllocateProducerIds are in `handlers.cluster.to_controller`, UnregisterBroker in `handlers.cluster.cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.raft.quorum import refused
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.protocol.messages import Message


async def handle_broker_registration(ctx: RequestContext, request: wire.BrokerRegistrationRequest) -> Struct:
    """BrokerRegistration v0-v4."""
    return await _reported(ctx, request, lambda: ctx.services.lives.register_broker(request))


async def handle_broker_heartbeat(ctx: RequestContext, request: wire.BrokerHeartbeatRequest) -> Struct:
    """BrokerHeartbeat v0-v2."""
    return await _reported(ctx, request, lambda: ctx.services.lives.heartbeat(request))


async def handle_controller_registration(ctx: RequestContext, request: wire.ControllerRegistrationRequest) -> Struct:
    """ControllerRegistration v0."""
    return await _reported(ctx, request, lambda: ctx.services.lives.register_controller(request))


async def handle_assign_replicas_to_dirs(ctx: RequestContext, request: wire.AssignReplicasToDirsRequest) -> Struct:
    """AssignReplicasToDirs v0."""
    return await _reported(ctx, request, lambda: ctx.services.lives.assign_directories(request))


async def _reported(ctx: RequestContext, request: Message, report: Callable[[], Awaitable[Struct]]) -> Struct:
    """The controller's answer, or its error for the whole request."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    if denial is not None:
        return denial
    try:
        return await report()
    except KafkaError as error:
        return refusal(request, ctx.api_version, error)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.BROKER_REGISTRATION, 0, 4, handle_broker_registration),
    Handler(ApiKey.BROKER_HEARTBEAT, 0, 2, handle_broker_heartbeat),
    Handler(ApiKey.CONTROLLER_REGISTRATION, 0, 0, handle_controller_registration),
    Handler(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, handle_assign_replicas_to_dirs),
)
