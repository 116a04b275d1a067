"""One client to each other broker, for one purpose: what is asked of the one that leads or coordinates something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kbroker.cluster.client import ClientSettings, NodeClient

if TYPE_CHECKING:
    from kbroker.cluster.client import Transport
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, Endpoint, MetadataDelta


class NodeClients:
    """`listener()` names the listener between brokers.  The client of a broker that leaves the cluster is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        cache: MetadataCache,
        listener: Callable[[], str],
        settings: ClientSettings,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._cache = cache
        self._listener = listener
        self._settings = settings
        self._clients: dict[int, NodeClient] = {}
        cache.subscribe(self._on_change)

    def of(self, node_id: int) -> NodeClient:
        """The client to a broker, connected or not."""
        client = self._clients.get(node_id)
        if client is None:
            find = partial(self._find, node_id)
            client = self._clients[node_id] = NodeClient(self._loop, self._transport, find, self._settings)
        return client

    def _find(self, node_id: int) -> Endpoint | None:
        broker = self._cache.image.brokers.get(node_id)
        return None if broker is None else broker.endpoints.get(self._listener())

    def _on_change(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        if delta.brokers is None:
            return
        for node_id in list(self._clients):
            if self._is_elsewhere(old, new, node_id):
                self._clients.pop(node_id).close()

    def _is_elsewhere(self, old: ClusterImage, new: ClusterImage, node_id: int) -> bool:
        before, after = old.brokers.get(node_id), new.brokers.get(node_id)
        return before is not None and (after is None or after.endpoints != before.endpoints)

    def close(self) -> None:
        """Hang up for good."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
