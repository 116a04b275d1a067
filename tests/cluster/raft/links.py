"""The network between replicas of a quorum: frames as they are on the wire, late, lost or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.raft.service import SERVED
from kbroker.errors import KafkaError
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, response_message, wire

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.cluster.client import Channel
    from kbroker.cluster.raft.answers import RaftAnswers
    from kbroker.protocol.messages import Message
    from tests.cluster.raft.replicas import Node

NAMES = {
    ApiKey.VOTE: "vote",
    ApiKey.BEGIN_QUORUM_EPOCH: "begin_epoch",
    ApiKey.END_QUORUM_EPOCH: "end_epoch",
    ApiKey.FETCH: "fetch",
    ApiKey.FETCH_SNAPSHOT: "fetch_snapshot",
    ApiKey.DESCRIBE_QUORUM: "describe",
    ApiKey.ADD_RAFT_VOTER: "add_voter",
    ApiKey.REMOVE_RAFT_VOTER: "remove_voter",
    ApiKey.UPDATE_RAFT_VOTER: "update_voter",
}


class Network:
    """The transport of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """See `Transport`."""
        world, other = self.node.world, self.node.world.nodes[port]
        await asyncio.sleep(world.rng.uniform(0.0001, 0.002))
        if (self.node.node_id, port) in world.cut:
            await asyncio.sleep(2)
            raise ConnectionRefusedError(f"{host}:{port}")
        if other.answers is None and port not in world.stopping:
            raise ConnectionRefusedError(f"{host}:{port}")
        return Link(self.node, other, received, lost)


class Link:
    """A connection from one node to another."""

    def __init__(
        self,
        node: Node,
        other: Node,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        self.node, self.other = node, other
        self.life = other.life
        self.received, self.lost = received, lost
        self.is_open = True

    def send(self, parts: list[Buffer]) -> None:
        """See `Channel`."""
        frame = b"".join(bytes(part) for part in parts)[4:]
        self._later(self.node, self.other, lambda: self._arrived(frame))

    def _later(self, one: Node, other: Node, call: Callable[[], None]) -> None:
        world = self.node.world
        if (one.node_id, other.node_id) in world.cut or world.rng.random() < world.loss:
            return  # The request has a time-out.
        slow = world.rng.random() < 0.02
        world.loop.call_later(world.rng.uniform(0.0002, 0.3 if slow else 0.005), call)

    def _arrived(self, frame: bytes) -> None:
        if self.other.life != self.life or self._service() is None:
            if self.is_open:
                self.is_open = False
                self.lost(ConnectionResetError("the other node is gone"))
            return
        self.node.world.spawn(self._serve(frame))

    def _service(self) -> RaftAnswers | None:
        return self.other.answers or self.node.world.stopping.get(self.other.node_id)

    async def _serve(self, frame: bytes) -> None:
        header = decode_request_header(frame)
        request = request_message(header.api_key).program(header.api_version).decode(frame, header.size)
        service = self._service()
        answer: Message
        if service is None:
            return
        if header.api_key == ApiKey.API_VERSIONS:
            made = wire.ApiVersionsResponse.ApiVersion
            served = {**SERVED, ApiKey.API_VERSIONS: (0, 4)}
            keys = [made(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in served.items()]
            feature = wire.ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            answer = wire.ApiVersionsResponse(api_keys=keys, supported_features=[feature])
        else:
            try:
                answer = await getattr(service, NAMES[ApiKey(header.api_key)])(request, header.api_version)
            except KafkaError:
                return  # The node has ended.
        if self.other.life != self.life:
            return
        flexible = header.api_key != ApiKey.API_VERSIONS
        program = response_message(header.api_key).program(header.api_version)
        parts = program.encode_response(answer, header.correlation_id, flexible)
        whole = parts if isinstance(parts, bytes) else b"".join(bytes(part) for part in parts)
        self._later(self.other, self.node, lambda: self._take(whole[4:]))

    def _take(self, frame: bytes) -> None:
        if self.is_open:
            self.received(frame)

    def close(self) -> None:
        """See `Channel`."""
        self.is_open = False
