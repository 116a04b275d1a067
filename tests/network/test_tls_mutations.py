"""Handshakes that are changed at random."""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import struct
from collections.abc import Iterator

import pytest
import uvloop

from tests.network import socket_kinds
from tests.network.served_connection import ECHO, frame, until
from tests.network.tls_wire import Wire, chosen_kind, served

HANDSHAKE, ALERT = 22, 21


@pytest.fixture(autouse=True, params=["tls", "tls12"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket_kinds.SocketKind]:
    yield from chosen_kind(request, monkeypatch)


def _mutated(flights: list[bytes], drawn: random.Random) -> bytes:
    data = bytearray(drawn.choice(flights))
    for _ in range(drawn.choice((1, 1, 2, 8, 40))):
        what, at = drawn.randrange(5), drawn.randrange(len(data))
        if what == 0:
            data[at] = drawn.randrange(256)
        elif what == 1:
            data[at] ^= 1 << drawn.randrange(8)
        elif what == 2:
            del data[at : at + drawn.randrange(1, 40)]
        elif what == 3:
            data[at:at] = drawn.randbytes(drawn.randrange(1, 40))
        else:
            other = drawn.choice(flights)
            data[at:] = other[drawn.randrange(len(other)) :]
        if not data:
            data = bytearray(b"\x16")
    return bytes(data)


async def _mutations(count: int) -> None:
    drawn = random.Random(5)
    async with served() as harness:
        wire = await Wire.connect(harness)
        flights = [wire.hello()]
        wire.writer.write(flights[0])
        flights.append(flights[0] + await wire.finish())
        wire.writer.write(flights[1][len(flights[0]) :])
        await wire.ask(frame(ECHO, 0, b"x"))

        async def one() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.listener.port)
            try:
                writer.write(_mutated(flights, drawn))
                writer.write_eof()
                while said := await reader.read(65536):
                    assert said[0] in (HANDSHAKE, ALERT, 20, 23), said[:20]
            except OSError:
                pass
            writer.close()

        async def grown(begin: int, end: int) -> int:
            """By how many kilobytes the process grows."""
            nonlocal asked
            gc.collect()
            held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for done in range(begin, end, 20):
                await asyncio.gather(*(one() for _ in range(20)))
                if done % 500 == 0:
                    assert await wire.ask(frame(ECHO, done, b"x")) == struct.pack(">i", done) + b"x"
                    asked += 1
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held

        asked = 1
        warm = min(5_000, count // 2)
        await grown(0, warm)
        growths = [await grown(warm, count)]
        while growths[-1] >= 20_000 and len(growths) < 4:
            # What is lost is lost each time; what threads of tests before take in this process is not.
            growths.append(await grown(warm, count))
        await until(lambda: len(harness.listener.endpoint.connections) == 1)
        assert harness.listener.endpoint.stats.total() == asked
        assert growths[-1] < 20_000, "kilobytes are held for nothing"


def test_mutated_handshakes_get_nothing() -> None:
    """A stranger could crash the broker, or get at what is behind the handshake."""
    uvloop.run(_mutations(1_000))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_very_many_mutated_handshakes_get_nothing() -> None:
    """The same, with as many as find what is rare."""
    uvloop.run(_mutations(50_000))
