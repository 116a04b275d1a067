"""The host by which others find a broker whose listeners name none."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.config import EVERY_HOST
from kbroker.metadata.image import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.metadata.image import BrokerImage

logger = logging.getLogger("kbroker.cluster")


def near_host(host: str) -> str:
    """Where a process of this machine reaches a listener that is bound to `host`."""
    return "127.0.0.1" if host in EVERY_HOST else host


async def with_host(broker: BrokerImage) -> BrokerImage:
    """A broker that others find: where listeners name no host, by this machine's name."""
    named = await named_endpoints(broker.endpoints)
    return broker if named is broker.endpoints else replace(broker, endpoints=named)


async def named_endpoints(endpoints: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
    """The same of endpoints by the names of their listeners."""
    if all(each.host for each in endpoints.values()):
        return endpoints
    host = await asyncio.to_thread(socket.getfqdn)
    if host.partition(".")[0] == "localhost":
        logger.warning(
            "this machine knows itself as %s only, and so will others: set advertised.listeners where brokers or "
            "clients are on other machines",
            host,
        )
    return {name: Endpoint(each.host or host, each.port) for name, each in endpoints.items()}
