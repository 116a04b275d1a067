"""A node without logs, replicas and coordinators: `kbroker.assembly.node`, `kbroker.assembly.listening`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import uvloop

from kbroker._fast.gate.gate import Gate, Gatekeeper
from kbroker._fast.net.route import Endpoint, Route
from kbroker.assembly.listening import Role, SentFiles
from kbroker.assembly.node import Node
from kbroker.config import BrokerConfig
from kbroker.metadata.security_image import SecurityImage
from tests.network.later import PlainProgram
from tests.network.served_connection import answer, frame

API = 3


class Counting(Gatekeeper):
    """Lets all requests pass, and counts the clients that are looked at."""

    asked = 0

    def gate_for(self, connection: Any, client_id: str | None) -> Gate | None:
        self.asked += 1
        return None


def role(listener: str, words: bytes, gatekeeper: Gatekeeper | None = None, **limits: Any) -> Role:
    """One API on one listener, answered with the words of the services that it is given."""
    program = PlainProgram()

    def handle(ctx: Any, body: memoryview) -> bytes:
        return bytes(ctx.services.words)

    def guard(endpoint: Endpoint, *, authenticates: bool) -> None:
        endpoint.gatekeeper = gatekeeper

    route = Route(API, 0, 1, handle, lambda v: program, lambda v: program, 1, 1)
    services = SimpleNamespace(words=words)
    return Role(services, {listener: [route]}, lambda ctx: None, guard, None, lambda subscriber: None, **limits)


async def asked(node: Node, listener: int) -> bytes:
    """The answer that one request gets there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.listeners.all[listener].port)
    writer.write(frame(API, 1, b""))
    try:
        return (await answer(reader))[1]
    finally:
        writer.close()


def test_a_node_serves_each_listener_by_its_role() -> None:
    """The listener of a controller would answer what a broker's answers, by a broker's parts and behind its gate."""

    async def body() -> None:
        listeners = "BROKER://127.0.0.1:0,OTHER://127.0.0.1:0"
        kinds = "BROKER:PLAINTEXT,OTHER:PLAINTEXT"
        settings = {"listeners": listeners, "listener.security.protocol.map": kinds, "metrics.listener": "none"}
        config = BrokerConfig.from_mapping(settings | {"inter.broker.listener.name": "BROKER"})
        node = Node(config, asyncio.get_running_loop(), None, SecurityImage)
        keeper = Counting()
        node.security.begin(config)
        roles = [role("OTHER", b"other"), role("BROKER", b"broker", keeper)]
        node.listeners.bind(roles, SentFiles(), config)
        node.schedule(lambda: config)
        await node.listeners.accept(node.listeners.all)
        found = {each.name: await asked(node, at) for at, each in enumerate(node.listeners.all)}
        assert found == {"OTHER": b"other", "BROKER": b"broker"}
        assert keeper.asked == 1
        node.stop_accepting()
        await node.close_connections()
        await node.close()

    uvloop.run(body())


def test_a_node_of_two_roles_has_the_listeners_of_both() -> None:
    """A broker that is a voter as well would answer no other voter."""

    async def body() -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9095",
            "metrics.listener": "none",
        }
        config = BrokerConfig.from_mapping(settings)
        node = Node(config, asyncio.get_running_loop(), None, SecurityImage)
        node.security.begin(config)
        node.listeners.bind([role("PLAINTEXT", b"broker"), role("CONTROLLER", b"controller")], SentFiles(), config)
        await node.listeners.accept(node.listeners.all)
        found = {each.name: await asked(node, at) for at, each in enumerate(node.listeners.all)}
        assert found == {"PLAINTEXT": b"broker", "CONTROLLER": b"controller"}
        node.stop_accepting()
        await node.close_connections()
        await node.close()

    uvloop.run(body())


def test_what_every_node_has_loads_no_logs_replicas_or_coordinators() -> None:
    """A controller alone would take the memory of a broker."""
    rooms = ("kbroker.storage.", "kbroker.replication.", "kbroker.coordinator.", "kbroker.handlers.")
    script = f"import sys, kbroker.assembly.node; print([each for each in sys.modules if each.startswith({rooms})])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
