"""The start of the metrics server at its listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kbroker.metrics.http_messages import KBROKER
from kbroker.metrics.http_server import MetricsServer
from kbroker.metrics.listener_address import is_encrypted, parse_listener

if TYPE_CHECKING:
    import ssl

    from kbroker.metrics.http_messages import Access, BodyLimits, Names, Pages, Sites
    from kbroker.metrics.readiness import Readiness
    from kbroker.metrics.sources import Sources

log = logging.getLogger("kbroker.metrics")


async def start_metrics_server(
    listener: str,
    sources: Sources,
    readiness: Readiness,
    pages: Pages | None = None,
    sites: Sites | None = None,
    hosts: Collection[str] = (),
    access: Access | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    names: Names = KBROKER,
    bodies: BodyLimits | None = None,
) -> MetricsServer | None:
    """Serve on `listener`, with the context that `tls` makes where it asks for one; `names`: those of /metrics.

    None when it is `none`, or when the address can't be had: metrics never stop a broker.
    """
    address = parse_listener(listener)
    if address is None:
        return None
    server = MetricsServer(sources, readiness, pages, sites, hosts, access, names, bodies)
    try:
        await server.listen(*address, tls() if tls is not None and is_encrypted(listener) else None)
    except OSError as error:
        log.warning(
            "no metrics: %s:%d can't be listened on (%s); set metrics.listener to a free address, or to none",
            *address,
            error.strerror or error,
        )
        return None
    return server
