"""Sends votes and epochs to the other voters, over a connection to each (KIP-595)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker import __version__
from kbroker.cluster.client import NodeClient, NodeError
from kbroker.cluster.kraft.log_questions import raft_client
from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.cluster.raft.election import Answer, ReplicaKey, Request, Vote, VoteAnswer
from kbroker.cluster.raft.messages import (
    KEYS,
    answer_of,
    endpoints_of,
    knows_pre_votes,
    request_for,
)
from kbroker.metadata.features import KRAFT_VERSION
from kbroker.metadata.image import Endpoint
from kbroker.outage import Outages
from kbroker.schemas import wire

if TYPE_CHECKING:
    import random

    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.settings import QuorumSettings

logger = logging.getLogger("kbroker.cluster")


class Peers:
    """`find(node_id)` says where a voter listens, `learnt(endpoints)` is called with addresses that answers name."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        settings: QuorumSettings,
        me: ReplicaKey,
        cluster_id: str,
        endpoints: Mapping[str, Endpoint],
        rng: random.Random,
        find: Callable[[int], Endpoint | None],
        learnt: Callable[[Mapping[int, Endpoint]], None],
    ) -> None:
        """`endpoints`: where this node listens, by the names of its listeners."""
        self._loop = loop
        self._transport = transport
        self._settings = raft_client(me.node_id, settings)
        self._me = me
        self._cluster_id = cluster_id
        self._endpoints = endpoints
        self._random = rng
        self._find = find
        self._learnt = learnt
        self._clients: dict[int, NodeClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outages = Outages(logger, now=loop.time)

    def send(self, request: Request, answered: Callable[[Answer], None], failed: Callable[[], None]) -> None:
        """Send a request; call `answered`, or `failed` where there is no answer."""
        task = self._loop.create_task(self._send(request, answered, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request: Request, answered: Callable[[Answer], None], failed: Callable[[], None]) -> None:
        node_id = request.to.node_id
        try:
            answer = await self._ask(request)
        except (NodeError, ValueError) as error:
            self._outages.failed(node_id, "voter %d cannot be asked: %s", node_id, error)
            failed()
            return
        self._outages.over(node_id, "voter %d answers again", node_id)
        answered(answer)

    async def _ask(self, request: Request) -> Answer:
        client = self._client(request.to.node_id)
        await client.connect()
        api_key = KEYS[type(request)]
        version = client.version_of(api_key, 2)
        if isinstance(request, Vote) and request.is_pre_vote and not knows_pre_votes(version):
            # A voter of Kafka 3.9 knows none, and would vote at once: so it is no reason not to stand.
            return VoteAnswer(0, request.epoch, NO_LEADER, is_granted=True)
        made = request_for(request, version, self._cluster_id, self._me, self._endpoints)
        response = await client.send(made, version)
        self._learnt({node_id: Endpoint(host, port) for node_id, host, port in endpoints_of(response)})
        return answer_of(response)

    def _client(self, node_id: int) -> NodeClient:
        client = self._clients.get(node_id)
        if client is None:
            find = partial(self._find, node_id)
            client = self._clients[node_id] = NodeClient(
                self._loop, self._transport, find, self._settings, self._random
            )
        return client

    @property
    def clients(self) -> Collection[NodeClient]:
        """The connections to other voters."""
        return self._clients.values()

    async def kraft_versions(self, endpoint: Endpoint) -> tuple[int, int]:
        """The range of kraft.version that a node at this address knows; one that names none knows 0.  NodeError."""
        client = NodeClient(self._loop, self._transport, lambda: endpoint, self._settings, self._random)
        try:
            request = wire.ApiVersionsRequest(client_software_name="kbroker", client_software_version=__version__)
            answer = await client.ask(wire.ApiVersionsResponse, request)
        finally:
            client.close()
        found = next((each for each in answer.supported_features or () if each.name == KRAFT_VERSION), None)
        return (0, 0) if found is None else (found.min_version, found.max_version)

    async def close(self) -> None:
        """Hang up, and forget what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            client.close()
