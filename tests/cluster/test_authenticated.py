"""Logins of brokers at brokers against a peer whose every byte the test decides.

Also of `kbroker.security.sasl.login`, `kbroker.security.sasl.mechanism`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kbroker.cluster.authenticated import AuthenticatedTransport
from kbroker.cluster.client import ClientSettings, ConnectionLostError, NodeClient, UnreachableError
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.sasl.mechanism import SaslError
from tests.cluster.nodes import Peer

ALTER = wire.AlterPartitionRequest


class Counting:
    """A mechanism of two tokens: `one`, and `two` for `1`; the server ends with `2`."""

    name = "COUNTING"

    def __init__(self) -> None:
        self.complete = False

    def first(self) -> bytes:
        return b"one"

    def evaluate(self, token: bytes) -> bytes | None:
        if token == b"1":
            return b"two"
        if token != b"2":
            raise SaslError("the server cannot count")
        self.complete = True
        return None


class Careless(Counting):
    """One that takes any end for the end."""

    def evaluate(self, token: bytes) -> bytes | None:
        return None


def run(scenario: Callable[[Peer, NodeClient], Awaitable[None]], mechanism: Callable[[], Counting] = Counting) -> None:
    async def main() -> None:
        peer = Peer()
        await peer.start()
        loop = asyncio.get_running_loop()
        endpoint = Endpoint("127.0.0.1", peer.port)

        async def made() -> Counting:
            return mechanism()

        transport = AuthenticatedTransport(loop, TcpTransport(loop), made, "1")
        settings = ClientSettings(client_id="1", backoff_seconds=0.001, max_backoff_seconds=0.002)
        client = NodeClient(loop, transport, lambda: endpoint, settings)
        try:
            async with asyncio.timeout(60):
                await scenario(peer, client)
        finally:
            client.close()
            await peer.stop()

    uvloop.run(main())


async def shake(peer: Peer, **fields: Any) -> None:
    header, body = await peer.request()
    assert (header.api_key, header.api_version, body.mechanism) == (ApiKey.SASL_HANDSHAKE, 1, "COUNTING")
    answer = wire.SaslHandshakeResponse(mechanisms=["COUNTING"], **fields)
    peer.answer(header.correlation_id, answer, 1, flexible=False)


async def take(peer: Peer, token: bytes, answer: bytes, **fields: Any) -> None:
    header, body = await peer.request()
    assert (header.api_key, header.api_version, body.auth_bytes) == (ApiKey.SASL_AUTHENTICATE, 1, token)
    peer.answer(header.correlation_id, wire.SaslAuthenticateResponse(auth_bytes=answer, **fields), 1, flexible=False)


async def log_in(peer: Peer, lifetime_ms: int = 0) -> None:
    await shake(peer)
    await take(peer, b"one", b"1")
    await take(peer, b"two", b"2", session_lifetime_ms=lifetime_ms)


async def answer(peer: Peer, expected: int) -> None:
    header, body = await peer.request()
    assert body.broker_id == expected
    peer.answer(header.correlation_id, wire.AlterPartitionResponse(throttle_time_ms=expected), 3)


def test_a_request_is_sent_when_the_login_is_done() -> None:
    """Brokers could not ask each other anything where listeners authenticate."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=7), 3))
        await log_in(peer)
        assert peer.frames.empty()
        await answer(peer, 7)
        assert (await asked).throttle_time_ms == 7

    run(scenario)


def test_a_proof_is_repeated_in_time_between_requests() -> None:
    """The other broker would close the connection, or a request would come amid the exchange, which closes it, too."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = [asyncio.ensure_future(client.send(ALTER(broker_id=1), 3))]
        await log_in(peer, lifetime_ms=200)
        first, _ = await peer.request()
        header, _ = await peer.request()
        assert header.api_key == ApiKey.SASL_HANDSHAKE  # The request before it is not answered yet.
        asked.append(asyncio.ensure_future(client.send(ALTER(broker_id=2), 3)))
        peer.answer(first.correlation_id, wire.AlterPartitionResponse(throttle_time_ms=1), 3)
        await asked[0]
        assert peer.frames.empty()
        peer.answer(header.correlation_id, wire.SaslHandshakeResponse(mechanisms=["COUNTING"]), 1, flexible=False)
        await take(peer, b"one", b"1")
        await take(peer, b"two", b"2", session_lifetime_ms=60_000)
        await answer(peer, 2)
        assert (await asked[1]).throttle_time_ms == 2

    run(scenario)


@pytest.mark.parametrize(
    ("mechanism", "steps", "said"),
    [
        (Counting, [lambda peer: shake(peer, error_code=33)], "UNSUPPORTED_SASL_MECHANISM: COUNTING .* COUNTING off"),
        (
            Counting,
            [shake, lambda peer: take(peer, b"one", b"", error_code=58, error_message="no such user")],
            "no such",
        ),
        (Counting, [shake, lambda peer: take(peer, b"one", b"3")], "the server cannot count"),
        (Careless, [shake, lambda peer: take(peer, b"one", b"")], "COUNTING came to no end"),
    ],
)
def test_a_login_that_fails_sends_nothing_and_says_why(
    mechanism: Callable[[], Counting], steps: list[Callable[[Peer], Awaitable[None]]], said: str
) -> None:
    """A broker would trust one that does not know its password, or hang without a word."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=7), 3))
        for step in steps:
            await step(peer)
        with pytest.raises(UnreachableError, match=said):
            await asked
        await peer.hung_up.wait()
        assert peer.frames.empty()

    run(scenario, mechanism)


def test_an_answer_to_another_request_ends_the_login() -> None:
    """A login could be taken for done by an answer that was to another one."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=7), 3))
        header, _ = await peer.request()
        peer.answer(header.correlation_id + 1, wire.SaslHandshakeResponse(mechanisms=[]), 1, flexible=False)
        with pytest.raises(UnreachableError, match="answer 2 where 1 is due"):
            await asked

    run(scenario)


def test_a_connection_that_ends_amid_a_login_is_told_at_once() -> None:
    """The request would wait until its time is over."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=7), 3))
        await shake(peer)
        peer.writers[-1].close()
        with pytest.raises(UnreachableError, match="ended while this broker logged in"):
            await asked

    run(scenario)


def test_a_proof_that_is_refused_later_ends_the_connection() -> None:
    """Requests would go on waiting behind an exchange that never ends."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        await asyncio.gather(client.connect(), log_in(peer, lifetime_ms=100))
        await shake(peer, error_code=33)
        await peer.hung_up.wait()
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=3), 3))
        await log_in(peer)
        await answer(peer, 3)
        await asked

    run(scenario)


def test_requests_under_way_fail_when_the_connection_ends() -> None:
    """They would wait for answers of a connection that there is not."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=7), 3))
        await log_in(peer)
        await peer.request()
        peer.writers[-1].close()
        with pytest.raises(ConnectionLostError):
            await asked

    run(scenario)
