"""Clients of a listener under TLS that make no session, or break it: each ends alone, and gets nothing that is plain.

Some speak without TLS, some go away or fall silent in the handshake, some send what is no record, before or behind it.
The broker hangs up, on the silent ones at its deadline; until then it says nothing but records of TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from kbroker.protocol.frames import encode_request
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.encrypted import PORT, contexts

if TYPE_CHECKING:
    from tests.simulation.sockets import End
    from tests.simulation.world import World

TAKING_PART = 0.5
"""The share of histories with such a listener that have these clients."""
RECORDS = frozenset({20, 21, 22, 23})
"""The kinds of records of TLS."""
HANDSHAKE_SECONDS, SLACK_SECONDS, LOOK_SECONDS = 30.0, 20.0, 0.1
VERSION_AT, MAJOR = 1, 3


class _Wire:
    """A connection whose bytes the client makes itself; `said`: all that came."""

    def __init__(self) -> None:
        self.end: End
        self.said = bytearray()
        self.gone = False
        self._buffer = bytearray(1 << 16)

    def connection_made(self, end: End) -> None:
        self.end = end

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.said += memoryview(self._buffer)[:size]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.gone = True


class Unkeyed(Client):
    """One connection after the other."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name, world.later)
        self.requests = requests

    async def run(self) -> None:
        kinds = (self._plain, self._cut_off, self._cut_off, self._no_record, self._broken_behind)
        while self.requests > 0:
            self.requests -= 1
            wires = _Wire()
            try:
                await self.world.network.connect(lambda made=wires: made, self.world.address(1)[0], PORT)
            except ConnectionRefusedError:
                await self.try_later()
                continue
            kind = self.rng.choice(kinds)
            self.judge.note("%s: %s", self.name, kind.__name__)
            await kind(wires)
            await self._ends(wires)

    async def _ends(self, wires: _Wire) -> None:
        """The broker hangs up, and has said records alone."""
        until = self.world.loop.time() + HANDSHAKE_SECONDS + SLACK_SECONDS
        while not wires.gone:
            if self.world.loop.time() > until:
                self.judge.fail(f"{self.name} makes no session, and is still there")
            await asyncio.sleep(LOOK_SECONDS)
        self.judge_said(bytes(wires.said))

    def judge_said(self, said: bytes) -> None:
        """What the broker may say to such a client."""
        if len(said) > VERSION_AT and (said[0] not in RECORDS or said[VERSION_AT] != MAJOR):
            self.judge.fail(f"{self.name} makes no session, and gets {said[:40]!r}")

    # What they do

    def _hello(self) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.rng.choice(contexts()).wrap_bio(incoming, outgoing)
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return tls, incoming, outgoing

    async def _plain(self, wires: _Wire) -> None:
        asked = wire.ApiVersionsRequest(client_software_name="u", client_software_version="1")
        wires.end.write(encode_request(asked.api_key, 3, 1, self.name, asked))

    async def _cut_off(self, wires: _Wire) -> None:
        """The first flight, or a part of it, and then nothing, or the end."""
        hello = self._hello()[2].read()
        wires.end.write(hello[: self.rng.choice((3, len(hello) // 2, len(hello)))])
        kind = self.rng.random()
        if kind < 0.4:
            wires.end.write_eof()
        elif kind < 0.8:
            wires.end.abort()

    async def _no_record(self, wires: _Wire) -> None:
        """Bytes in the place of a part of the handshake."""
        hello = self._hello()[2].read()
        at = self.rng.randrange(1, len(hello))
        wires.end.write(hello[:at] + self.rng.randbytes(len(hello) - at))
        await asyncio.sleep(LOOK_SECONDS)
        if not (wires.gone or wires.end.closed):
            wires.end.write_eof()  # A hello may make sense all the same, and those who only wait have their own kind.

    async def _broken_behind(self, wires: _Wire) -> None:
        """A session, and behind it what is no record of it."""
        tls, incoming, outgoing = self._hello()
        until = self.world.loop.time() + HANDSHAKE_SECONDS
        is_shaken, taken = False, 0
        while not is_shaken and not wires.gone and self.world.loop.time() < until:
            if not wires.end.closed:
                wires.end.write(outgoing.read())
            await asyncio.sleep(0.001)
            incoming.write(wires.said[taken:])
            taken = len(wires.said)
            try:
                tls.do_handshake()
                is_shaken = True
            except ssl.SSLWantReadError:
                pass
        if not (wires.gone or wires.end.closed):
            wires.end.write(outgoing.read() + b"\x17\x03\x03\x00\x40" + self.rng.randbytes(0x40))


def draw_unkeyed(world: World) -> list[Unkeyed]:
    """Those of a history."""
    if world.encryption is None or world.later.random() >= TAKING_PART:
        return []
    return [Unkeyed(world, "unkeyed", world.later.choice((2, 6)))]


__all__ = ["Unkeyed", "draw_unkeyed"]
