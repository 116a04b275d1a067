"""Clients of the group handlers that speak bytes: requests are encoded, decoded, handled, and the answers likewise."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kbroker._fast.base.slices import Slices
from kbroker._fast.net.pending import Pending
from kbroker._fast.wire.codec import Struct
from kbroker.coordinator.streams.configuration import InternalTopic
from kbroker.handlers.cluster.cluster_view import ClusterView
from kbroker.handlers.groups import consumer_groups, groups, offsets, streams_groups
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.schemas import message
from tests.coordinator.harness import World, create_topics, topic_image
from tests.unbroken import UNBROKEN, finished

HANDLERS: dict[int, Handler] = {
    int(row.api_key): row
    for row in (*groups.HANDLERS, *offsets.HANDLERS, *consumer_groups.HANDLERS, *streams_groups.HANDLERS)
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Controller:
    """The one thing that handlers ask of the controller."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ensured: list[str] = []

    async def ensure_internal_topic(self, name: str) -> None:
        self.ensured.append(name)
        if name == GROUP_METADATA_TOPIC:
            self._world.log.ensure_topic()
        elif self._world.cache.topic(name) is None:
            create_topics(self._world.cache, topic_image(name, bytes(range(48, 64)), 2))


class InternalTopics:
    """Topics that are asked for are there in the loop's next turn."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, _group_id: str, topics: Mapping[str, InternalTopic], _ms: int, _quota: object = None) -> None:
        for name, topic in sorted(topics.items()):
            topic_id = hashlib.md5(name.encode()).digest()
            create = partial(create_topics, self._world.cache, topic_image(name, topic_id, topic.partitions))
            self._world.loop.call_soon(create)

    def failures(self, _names: Iterable[str]) -> dict[str, str]:
        return {}


@dataclass
class Services:
    config: Any
    clock: Any
    node_id: int
    metadata_cache: Any
    group_coordinator: Any
    controller: Controller
    loop: Any
    slices: Slices
    consumer_groups: Any = None
    state_log: Any = None
    share_groups: Any = None
    streams_groups: Any = None
    internal_topics: Any = None
    zookeeper_offsets: Any = None
    view: ClusterView = field(default_factory=ClusterView)


@dataclass
class Connection:
    peer_host: str = "127.0.0.1"
    peer_port: int = 40_000
    local_host: str = "127.0.0.1"
    local_port: int = 9092
    listener_name: str = "PLAINTEXT"


@dataclass
class Context:
    api_version: int
    services: Services
    client_id: str | None = "probe"
    connection: Connection = field(default_factory=Connection)
    answers: list[Struct] = field(default_factory=list)
    waiting: Any = None
    gate: Any = None

    def respond(self, response: Struct) -> None:
        self.answers.append(response)


class Client:
    """One connection: at most one request under way."""

    def __init__(self, world: World, client_id: str | None = "probe", gate: Any = None) -> None:
        self._client_id = client_id
        self._gate = gate
        self.controller = Controller(world)
        self._services = Services(
            world.config,
            world.loop,
            1,
            world.cache,
            world.coordinator,
            self.controller,
            world.loop,
            UNBROKEN,
            world.consumer_groups,
            streams_groups=world.streams_groups,
            internal_topics=InternalTopics(world),
        )
        self._context: Context | None = None
        self._response: tuple[Any, int] = (None, 0)

    def send(self, name: str, version: int, **fields: Any) -> None:
        request = message(f"{name}Request")
        row = HANDLERS[request.api_key]
        assert row.serves(version)
        body = request.program(version).decode(request.program(version).encode(request(**fields)))
        self._context = Context(version, self._services, self._client_id, gate=self._gate)
        self._response = (message(f"{name}Response"), version)
        answer = finished(row.handle(self._context, body))  # type: ignore[arg-type]
        if isinstance(answer, Pending):
            answer.begin(self._context)
        else:
            assert isinstance(answer, Struct)
            self._context.respond(answer)

    @property
    def waits(self) -> bool:
        return self._context is not None and not self._context.answers

    def receive(self) -> Any:
        assert self._context is not None
        if not self._context.answers:
            # Answers that had to wait are sent in the loop's next turn.
            self._services.loop.advance(0.0)
        assert len(self._context.answers) == 1, f"{len(self._context.answers)} answers"
        response, version = self._response
        program = response.program(version)
        answer = program.decode(program.encode(self._context.answers.pop()))
        self._context = None
        return answer

    def call(self, name: str, version: int, **fields: Any) -> Any:
        self.send(name, version, **fields)
        return self.receive()


def plain(value: Any) -> Any:
    """A message as JSON has it, in an order that does not matter, without what is random."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in vars(type(value))["__slots__"]}
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, list):
        return sorted((plain(each) for each in value), key=repr)
    if isinstance(value, str):
        return _UUID.sub("UUID", value)
    return value
