"""Answers that a listener keeps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.net.answer_memo import AnswerMemo, AnswerRenewal, Validity
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.route import Route
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener import Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.security.plaintext import Plaintext
from tests.network.later import PlainProgram
from tests.network.served_connection import answer, serving

LASTING, OTHER = 3, 4
ONCE = b"once"
REPEATED = b"repeated"


class Session:
    """What a renewal moves on."""

    def __init__(self) -> None:
        self.armed = True
        self.moves: list[float] = []

    def move(self, seconds: float) -> None:
        self.moves.append(seconds)


class Asked:
    """A listener whose handler notes what it was asked and answers with how often that was."""

    def __init__(self, busy_poll_us: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.standing, self.session = Validity(), Session()
        program = PlainProgram()
        self.listener = Listener(
            "PLAINTEXT",
            "0.0.0.0",
            0,
            SocketOptions(128),
            ConnectionLimits(50, 50, {}),
            reactor=Reactor(
                asyncio.get_running_loop(), BufferPool(16384, 4 << 20), RequestStats(), busy_poll_us=busy_poll_us
            ),
            routes=[
                Route(key, 0, 1, self.handle, lambda v: program, lambda v: program, 1, 1, key == LASTING)
                for key in (LASTING, OTHER)
            ],
            unsupported=lambda ctx: None,
            max_frame_bytes=1 << 20,
            max_idle_ms=60_000,
            security=Plaintext(),
        )

    def handle(self, ctx: Any, body: memoryview) -> bytes:
        self.bodies.append(bytes(body))
        ctx.cacheable = not body.tobytes().startswith(ONCE)
        if body.tobytes().startswith(REPEATED):
            ctx.renewal = AnswerRenewal(self.standing, self.session, 4.5, ctx.client_id, "127.0.0.1")
        return b"%d of " % len(self.bodies) + bytes(body)

    @property
    def known(self) -> AnswerMemo:
        return self.listener.endpoint.answers

    async def ask(self, *frames: bytes, host: str = "127.0.0.1") -> list[tuple[int, bytes]]:
        reader, writer = await asyncio.open_connection(host, self.listener.port)
        writer.write(b"".join(frames))
        found = [await answer(reader) for _ in frames]
        writer.close()
        return found


@contextlib.asynccontextmanager
async def running(busy_poll_us: int = 0) -> AsyncIterator[Asked]:
    asked = Asked(busy_poll_us)
    async with serving(asked.listener):
        yield asked
