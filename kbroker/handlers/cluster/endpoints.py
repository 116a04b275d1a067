"""The address of a broker that a client gets in answers.

If `advertised.listeners` names the client's listener, it is that address.  Otherwise a client of this broker gets the
address that it connected to, which it can certainly reach.  Kafka instead announces the listener's own host, the most
common beginner's failure.  Metadata, DescribeCluster and FindCoordinator must give the same address, so all call this
module.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.services import ClientConnection, RequestContext

_MAPPED_IPV4 = "::ffff:"


def local_broker(config: BrokerConfig, node_id: int) -> BrokerImage:
    """This broker as its settings describe it."""
    shown = config.advertised_listeners or config.listeners
    return BrokerImage(
        node_id=node_id,
        endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in shown},
        rack=config.get("broker.rack"),
        advertised=bool(config.advertised_listeners),
    )


def endpoint_for(ctx: RequestContext, broker: BrokerImage) -> Endpoint | None:
    """Where the client of `ctx` reaches `broker`; None when it has no endpoint on the client's listener."""
    connection = ctx.connection
    endpoint = broker.endpoints.get(connection.listener_name)
    is_own = broker.node_id == ctx.services.node_id
    if is_own and (endpoint is None or not broker.advertised or ctx.services.view.shows_dialled):
        return _dialled(connection)
    if endpoint is not None and not broker.advertised:
        # A worker of this host: a client that has reached one worker's address reaches all workers by it.
        return Endpoint(_dialled(connection).host, endpoint.port)
    return endpoint


def reachable_brokers(ctx: RequestContext, image: ClusterImage) -> list[tuple[BrokerImage, Endpoint]]:
    """The living brokers that have an endpoint for the client, by id."""
    return _with_endpoints(ctx, image.alive_brokers())


def brokers_shown(
    ctx: RequestContext, image: ClusterImage, reachable: list[tuple[BrokerImage, Endpoint]]
) -> list[tuple[BrokerImage, Endpoint]]:
    """The brokers that a client is to know of; see `ClusterView`."""
    return ctx.services.view.brokers(reachable, partial(registered_brokers, ctx, image))


def registered_brokers(ctx: RequestContext, image: ClusterImage) -> list[tuple[BrokerImage, Endpoint]]:
    """The brokers that have an endpoint for the client, by id, those that are fenced as well."""
    return _with_endpoints(ctx, [image.brokers[node_id] for node_id in sorted(image.brokers)])


def _with_endpoints(ctx: RequestContext, brokers: Iterable[BrokerImage]) -> list[tuple[BrokerImage, Endpoint]]:
    found = []
    for broker in brokers:
        endpoint = endpoint_for(ctx, broker)
        if endpoint is not None:
            found.append((broker, endpoint))
    return found


def controller_shown(ctx: RequestContext, image: ClusterImage, shown: Iterable[BrokerImage]) -> int:
    """The broker that clients are to take for the controller; `shown`: the brokers that the answer has."""
    return ctx.services.view.controller(image, ctx.services.node_id, shown)


def _dialled(connection: ClientConnection) -> Endpoint:
    host = connection.local_host
    if host.startswith(_MAPPED_IPV4) and "." in host:
        # An IPv4 client of a dual-stack socket: the mapped form may not be usable where the client runs.
        host = host[len(_MAPPED_IPV4) :]
    return Endpoint(host, connection.local_port)
