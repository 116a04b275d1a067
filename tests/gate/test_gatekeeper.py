"""The gate with a fake authorizer: over a real listener, and before the handlers that ask it.

Also of `kbroker._fast.gate.gate`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.route import Route
from kbroker.clock import SYSTEM_CLOCK
from kbroker.errors import ErrorCode
from kbroker.gate.client_gate import ClientGate
from kbroker.gate.gatekeeper import BrokerGatekeeper
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.security_image import Acl
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener import Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.quotas.rules import PRODUCER_BYTE_RATE
from kbroker.security.acl.kinds import PatternType, Permission
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.authorizer import CachedAuthorizer, Operation, ResourceKind
from kbroker.security.plaintext import Plaintext
from kbroker.security.principal import ANONYMOUS, AuthenticationState, Principal, Session
from tests.gate.rules import Rules, known, meters
from tests.handlers.admin_broker import AdminBroker
from tests.network.later import PlainProgram
from tests.network.served_connection import answer, frame, serving

LASTING, OTHER = 3, 18
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


class Guarded:
    """A listener whose cacheable answers say what their client may see."""

    def __init__(self, rules: Rules | None, image: ClusterImage | None = None) -> None:
        self.handled = 0
        program = PlainProgram()
        self.keeper = BrokerGatekeeper(SYSTEM_CLOCK, image or ClusterImage("c"), meters(), rules)
        self.reactor = Reactor(asyncio.get_running_loop(), BufferPool(16384, 4 << 20), RequestStats())
        routes = [
            Route(key, 0, 1, self.handle, lambda v: program, lambda v: program, 1, 1, key == LASTING)
            for key in (LASTING, OTHER)
        ]
        self.listener = Listener(
            "PLAINTEXT",
            "127.0.0.1",
            0,
            SocketOptions(128),
            ConnectionLimits(50, 50, {}),
            reactor=self.reactor,
            routes=routes,
            unsupported=lambda ctx: None,
            max_frame_bytes=1 << 20,
            max_idle_ms=60_000,
            security=Plaintext(),
        )
        self.keeper.guard(self.listener.endpoint, authenticates=False)

    def handle(self, ctx: Any, body: memoryview) -> bytes:
        self.handled += 1
        ctx.cacheable = True
        allowed = ctx.gate is None or ctx.gate.is_authorized(Operation.DESCRIBE, ResourceKind.TOPIC, "t")
        return b"seen" if allowed else b"hidden"

    @contextlib.asynccontextmanager
    async def client(self, session: Session | None = None) -> AsyncIterator[Callable[[bytes], Any]]:
        """A connection of that session: `await ask(frame)` is the answer's body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        port = writer.get_extra_info("sockname")[1]

        async def ask(request: bytes) -> bytes:
            for connection in self.listener.endpoint.connections:
                if connection.peer_port == port and session is not None and connection.session is not session:
                    connection.session = session
            writer.write(request)
            return (await answer(reader))[1]

        while not any(connection.peer_port == port for connection in self.listener.endpoint.connections):
            await asyncio.sleep(0)
        yield ask
        writer.close()


def test_no_principal_gets_the_remembered_answer_of_another_that_may_see_more() -> None:
    """A client would read from the memory of answers what its rules hide."""

    async def main() -> None:
        rules = Rules((ALICE, Operation.DESCRIBE, "t"))
        guarded = Guarded(rules)
        async with (
            serving(guarded.listener),
            guarded.client(known(ALICE)) as alice,
            guarded.client(known(BOB)) as bob,
        ):
            request = frame(LASTING, 1, b"what is there")
            assert [await alice(request), await bob(request), await alice(request)] == [b"seen", b"hidden", b"seen"]
            assert guarded.handled == 2
            assert rules.asked == [(ALICE, Operation.DESCRIBE, "t"), (BOB, Operation.DESCRIBE, "t")]
            rules.change((BOB, Operation.DESCRIBE, "t"))
            assert [await alice(request), await bob(request)] == [b"hidden", b"seen"]

    uvloop.run(main())


def test_a_client_that_has_not_authenticated_is_hung_up_on() -> None:
    """Its requests would be served as if it had."""

    async def main() -> None:
        guarded = Guarded(Rules())
        waiting = Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT", AuthenticationState.HANDSHAKE)
        async with serving(guarded.listener), guarded.client(waiting) as ask:
            assert await ask(frame(OTHER, 1, b"versions")) == b"hidden"
            with pytest.raises(asyncio.IncompleteReadError):
                await ask(frame(LASTING, 2, b"metadata"))
            assert guarded.handled == 1

    uvloop.run(main())


def test_where_nothing_is_asked_there_is_no_gate() -> None:
    """Every request would pay for quotas of others."""

    async def main() -> None:
        free = Guarded(None)
        assert free.listener.endpoint.gatekeeper is None
        quotas = {(("client-id", "other"),): {PRODUCER_BYTE_RATE: 5.0}}
        free.keeper.follow(ClusterImage.of("c", quotas=quotas))
        assert free.listener.endpoint.gatekeeper is free.keeper
        async with serving(free.listener), free.client() as ask:
            assert await ask(frame(LASTING, 1, b"x", client_id=b"mine")) == b"seen"
            (connection,) = free.listener.endpoint.connections
            assert free.keeper.gate_for(connection, "mine") is None
            assert free.keeper.gate_for(connection, "other") is not None
        free.keeper.follow(ClusterImage("c"))
        assert free.listener.endpoint.gatekeeper is None

    uvloop.run(main())


def test_decisions_are_remembered_until_they_change_a_bounded_number_of_them() -> None:
    """An authorizer would be asked for each request, or its memory would grow with what clients name."""
    rules = Rules((ALICE, Operation.READ, "t"))
    cached = CachedAuthorizer(rules)

    def may_read(name: str) -> bool:
        return cached.is_authorized(ALICE, "h", Operation.READ, ResourceKind.TOPIC, name)

    assert [may_read("t"), may_read("t"), may_read("u")] == [True, True, False]
    assert len(rules.asked) == 2
    rules.change()
    assert not may_read("t")


@pytest.mark.parametrize("kinds", [(ResourceKind.TOPIC, ResourceKind.GROUP), (ResourceKind.GROUP, ResourceKind.TOPIC)])
def test_a_decision_is_remembered_for_one_kind_of_resource(kinds: tuple[ResourceKind, ResourceKind]) -> None:
    """Who may read a topic could join the group of its name, once the topic was read."""
    allowed, other = kinds
    rule = Acl(allowed, "n", PatternType.LITERAL, str(ALICE), "*", Operation.READ, Permission.ALLOW)
    authorizer = StandardAuthorizer(AuthorizerSettings(), [rule])
    keeper = BrokerGatekeeper(SYSTEM_CLOCK, ClusterImage("c"), meters(), authorizer)
    gate = ClientGate(known(ALICE), CachedAuthorizer(authorizer), {}, keeper.meters, keeper.now_ms, keeper)
    for _ in range(2):
        assert gate.is_authorized(Operation.READ, allowed, "n")
        assert not gate.is_authorized(Operation.READ, other, "n")
        assert not gate.is_authorized(Operation.WRITE, allowed, "n")
        assert not gate.is_authorized(Operation.READ, allowed, "m")


def test_a_session_moves_only_as_authentication_goes() -> None:
    """A connection could be taken for authenticated without having been."""
    session = Session(state=AuthenticationState.HANDSHAKE)
    with pytest.raises(ValueError, match="handshake is not followed by authenticated"):
        session.moved(AuthenticationState.AUTHENTICATED, ALICE)
    done = session.moved(AuthenticationState.AUTHENTICATE).moved(AuthenticationState.AUTHENTICATED, ALICE)
    assert done.principal == ALICE and done.may_ask(0)
    failed = session.moved(AuthenticationState.FAILED)
    assert not failed.may_ask(18)
    with pytest.raises(ValueError, match="failed is not followed by"):
        failed.moved(AuthenticationState.AUTHENTICATE)


def test_metadata_and_quotas_show_what_a_client_may_see(tmp_path: Path) -> None:
    """Names of hidden topics would be told, or settings of the cluster shown to anybody."""
    broker = AdminBroker.start(tmp_path)
    try:
        row = {"name": "open", "num_partitions": 1, "replication_factor": 1}
        broker.ask("CreateTopics", 7, {"topics": [row, row | {"name": "hidden"}]})
        rules = Rules((ANONYMOUS, Operation.DESCRIBE, "open"))
        keeper = BrokerGatekeeper(SYSTEM_CLOCK, ClusterImage("c"), meters(), rules)
        connection: Any = broker.connection
        connection.session = known(ANONYMOUS)
        broker.gate = keeper.gate_for(connection, "test")
        listed = broker.ask("Metadata", 9, {"topics": None})
        assert [topic["name"] for topic in listed["topics"]] == ["open"]
        asked = {"topics": [{"name": name} for name in ("open", "hidden", "missing")]}
        codes = {topic["name"]: topic["error_code"] for topic in broker.ask("Metadata", 9, asked)["topics"]}
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes == {"open": 0, "hidden": refused, "missing": refused}
        by_id = broker.ask("Metadata", 12, {"topics": [{"name": None, "topic_id": "$id:hidden"}]})
        assert [(topic["name"], topic["error_code"]) for topic in by_id["topics"]] == [(None, refused)]
        described = broker.ask("DescribeClientQuotas", 1, {"components": [], "strict": False})
        assert described["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    finally:
        broker.stop()
