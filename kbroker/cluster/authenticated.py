"""Connections to other brokers that prove who this one is (SASL), in front of any transport.

The exchange comes first on a new connection.  Where the other side limits how long a proof counts, it is repeated in
time on the same connection (KIP-368): what was sent before is answered before, and what is to be sent meanwhile waits,
as a broker takes nothing else between the messages of an exchange.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kbroker.errors import again
from kbroker.security.sasl.login import LoginError, LoginExchange

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.cluster.client import Channel, Transport
    from kbroker.security.sasl.mechanism import ClientMechanism

# Of the lifetime of a proof, as Kafka's clients repeat it (`SaslClientAuthenticator`).
EARLIEST, LATEST = 0.85, 0.95


class LoginFailedError(OSError):
    """The other side does not take this broker for who it says it is, or is not who it should be."""


class AuthenticatedTransport:
    """`transport` with an exchange on each connection; `mechanism()` makes this side of one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        mechanism: Callable[[], Awaitable[ClientMechanism]],
        client_id: str,
        rng: random.Random | None = None,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._mechanism = mechanism
        self._client_id = client_id
        self._random = rng or random.Random()

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """See `Transport`.  LoginFailedError where the exchange fails."""
        channel = _AuthenticatedChannel(
            self._loop,
            self._make_exchange,
            received,
            lost,
            lambda seconds: seconds * self._random.uniform(EARLIEST, LATEST),
        )
        connected = await self._transport.connect(host, port, channel.on_frame, channel.on_lost, max_frame_bytes)
        try:
            await channel.log_in(connected)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _make_exchange(self) -> LoginExchange:
        return LoginExchange(await self._mechanism(), self._client_id)


class _AuthenticatedChannel:
    """See the module and `Channel`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_exchange: Callable[[], Awaitable[LoginExchange]],
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        due: Callable[[float], float],
    ) -> None:
        self._loop = loop
        self._make_exchange = make_exchange
        self._received = received
        self._lost = lost
        self._due = due
        self._channel: Channel | None = None
        self._first: asyncio.Future[Exception | None] = loop.create_future()
        self._exchange: LoginExchange | None = None
        self._unanswered = 0
        """Requests whose answers are the client's; those of an exchange come after them."""
        self._held: list[list[Buffer]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._beginning: asyncio.Task[None] | None = None

    async def log_in(self, channel: Channel) -> None:
        """The first exchange.  LoginFailedError, OSError."""
        self._channel = channel
        await self._begin()
        error = await self._first
        if error is not None:
            raise again(error)

    def send(self, parts: list[Buffer]) -> None:
        if self._exchange is not None:
            self._held.append(parts)
        elif self._channel is not None:
            self._unanswered += 1
            self._channel.send(parts)

    def close(self) -> None:
        self._stop()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # What the transport calls

    def on_frame(self, frame: Buffer) -> None:
        """Something has come."""
        if self._exchange is None or self._unanswered > 0:
            self._unanswered -= 1
            self._received(frame)
            return
        try:
            request = self._exchange.answered(frame)
        except LoginError as error:
            self._fail(LoginFailedError(str(error)))
            return
        if request is not None:
            self._write(request)
        else:
            self._end(self._exchange.lifetime_ms)

    def on_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._stop()
        self._channel = None
        if not self._first.done():
            reason = "the connection ended while this broker logged in"
            self._first.set_result(LoginFailedError(f"{reason}: {error}" if error else reason))
        else:
            self._lost(error)

    # The exchange

    def _repeat(self) -> None:
        self._timer = None
        self._beginning = self._loop.create_task(self._begin())

    async def _begin(self) -> None:
        try:
            exchange = await self._make_exchange()
        except OSError as error:
            self._fail(LoginFailedError(str(error)))
            return
        if self._channel is not None:
            self._exchange = exchange
            self._write(exchange.begin())

    def _write(self, request: list[Buffer]) -> None:
        if self._channel is not None:
            self._channel.send(request)

    def _end(self, lifetime_ms: int) -> None:
        self._exchange = None
        if lifetime_ms > 0:
            self._timer = self._loop.call_later(self._due(lifetime_ms / 1000), self._repeat)
        if not self._first.done():
            self._first.set_result(None)
        held, self._held = self._held, []
        for parts in held:
            self.send(parts)

    def _fail(self, error: Exception) -> None:
        channel, self._channel = self._channel, None
        self._stop()
        if channel is not None:
            channel.close()
        if not self._first.done():
            self._first.set_result(error)
        else:
            self._lost(error)

    def _stop(self) -> None:
        self._exchange = None
        self._held.clear()
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
