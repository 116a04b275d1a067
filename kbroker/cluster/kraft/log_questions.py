"""Sends what `quorum` asks for, Fetch and FetchSnapshot, over one connection, to the controller that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.client import ClientSettings, NodeClient, UnsupportedVersionError
from kbroker.cluster.kraft.quorum_requests import FETCH_VERSIONS, SNAPSHOT_VERSIONS, fetch_request, snapshot_request
from kbroker.cluster.kraft.quorum_steps import Ask, Fetch
from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    import asyncio
    import random

    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.quorum_steps import Identity
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.metadata.image import Endpoint
    from kbroker.schemas import wire


class LogQuestions:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        settings: QuorumSettings,
        identity: Identity,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._endpoint: Endpoint | None = None
        self.client = NodeClient(loop, transport, lambda: self._endpoint, raft_client(identity.node_id, settings), rng)

    async def ask(self, ask: Ask) -> wire.FetchResponse | wire.FetchSnapshotResponse:
        """The answer.  NodeError, ValueError."""
        if ask.to != self._endpoint:
            self._endpoint = ask.to
            self.client.disconnect()
        await self.client.connect()
        request, version = self._request(ask)
        answer: wire.FetchResponse | wire.FetchSnapshotResponse = await self.client.send(request, version)
        return answer

    def _request(self, ask: Ask) -> tuple[wire.FetchRequest | wire.FetchSnapshotRequest, int]:
        settings = self._settings
        if isinstance(ask, Fetch):
            version = self._version(ApiKey.FETCH, *FETCH_VERSIONS)
            return fetch_request(self._identity, ask.place, settings.fetch_bytes, version), version
        version = self._version(ApiKey.FETCH_SNAPSHOT, *SNAPSHOT_VERSIONS)
        size = settings.snapshot_fetch_bytes
        return snapshot_request(self._identity, ask.epoch, ask.snapshot, ask.position, size, version), version

    def _version(self, api_key: ApiKey, first: int, last: int) -> int:
        version = self.client.version_of(api_key, last)
        if version < first:
            raise UnsupportedVersionError(f"{api_key.message_name} has no version from {first} on, only {version}")
        return version


def raft_client(node_id: int, settings: QuorumSettings) -> ClientSettings:
    """How a node of the quorum asks another one."""
    return ClientSettings(
        client_id=f"raft-client-{node_id}",
        negotiates=True,
        connect_seconds=settings.request_seconds,
        request_seconds=min(settings.request_seconds, settings.fetch_seconds),
        backoff_seconds=settings.backoff_seconds,
        max_backoff_seconds=settings.backoff_seconds,
    )
