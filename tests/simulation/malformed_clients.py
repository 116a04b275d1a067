"""A client that sends what is no request: frames without sense, APIs, versions and bodies that there are not.

The broker hangs up on it, in good time and behind the answers to what it had asked before, and nobody else feels it; a
version of ApiVersions that there is not is answered, as version 0 with UNSUPPORTED_VERSION, so that clients of later
releases find out what there is (KIP-511).
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from kbroker.error_codes import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.simulation.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

HANGS_UP_WITHIN_SECONDS = 30.0
LOOK_SECONDS = 0.05
LATER_VERSION, NO_API = 99, 999
HEADER = struct.Struct(">hhi")
NO_STRING = b"\xff\xff"


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Rude(Client):
    """Asks something that there is, sends its nonsense, and waits for the end."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests

    async def run(self) -> None:
        rng = self.rng
        kinds: tuple[Callable[[], bytes], ...] = (
            self._no_length, self._too_long, self._no_header, self._no_api, self._no_version, self._no_body,
            self._no_tags,
        )  # fmt: skip
        while self.requests > 0:
            self.requests -= 1
            connection = await self.connect(rng.choice(self.world.nodes))
            if connection is None:
                await self.try_later()
                continue
            for _ in range(rng.choice((0, 1, 3))):
                connection.ask(wire.ApiVersionsRequest(client_software_name="r", client_software_version="1"), 3)
            if rng.random() < 0.2:
                await self._ask_for_later_version(connection)
            else:
                kind = rng.choice(kinds)
                self.judge.note("%s sends %s", connection.name, kind.__name__)
                connection.flush()
                # A socket that is closed while bytes are unread takes along what is under way to the client.
                connection.may_be_closed |= kind in (self._too_long, self._no_header)
                connection.end.write(kind())
                await self.judge_end(connection)
            if not connection.gone:
                connection.finish(rng)

    async def judge_end(self, connection: ModelConnection) -> None:
        """The broker hangs up, and has answered before what it was asked before."""
        world = self.world
        until, asked = world.loop.time() + HANGS_UP_WITHIN_SECONDS, bool(connection.outstanding)
        while connection.outstanding and not connection.gone:
            await connection.change()
        is_excused = connection.may_be_closed
        connection.may_be_closed = True
        if asked and connection.gone and connection.outstanding and not is_excused:
            self.judge.fail(f"{connection.name} is hung up on before it has its answers")
        while not connection.gone:
            # A process that is held up does nothing at all.
            process = world.processes.get(connection.node)
            if process is not None and process.backlog is not None:
                until = world.loop.time() + HANGS_UP_WITHIN_SECONDS
            if world.loop.time() > until:
                self.judge.fail(f"{connection.name} has sent what is no request, and is still there")
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask_for_later_version(self, connection: ModelConnection) -> None:
        request = wire.ApiVersionsRequest(client_software_name="r", client_software_version="1")
        answer = await connection.answer(request, 3, said=LATER_VERSION)
        if answer is not None and answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
            self.judge.fail(f"{connection.name}: version {LATER_VERSION} is answered {answer}")

    # What is no request

    def _no_length(self) -> bytes:
        return struct.pack(">i", self.rng.choice((-1, -(2**31), 0, 3)))

    def _too_long(self) -> bytes:
        # Real brokers take frames of 100 MB, and wait for what a smaller length announces.
        lengths = (200_001, 2**31 - 1) if self.world.has_virtual_time else (2**31 - 1,)
        return struct.pack(">i", self.rng.choice(lengths)) + bytes(self.rng.choice((0, 100)))

    def _no_header(self) -> bytes:
        return framed(self.rng.randbytes(self.rng.randint(4, 7)))

    def _no_api(self) -> bytes:
        return framed(HEADER.pack(NO_API, 0, 7) + NO_STRING)

    def _no_version(self) -> bytes:
        key = self.rng.choice((ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS))
        return framed(HEADER.pack(key, self.rng.choice((-1, LATER_VERSION)), 7) + NO_STRING)

    def _no_body(self) -> bytes:
        """The number of items is beyond the frame's end."""
        key, version = self.rng.choice(((ApiKey.METADATA, 4), (ApiKey.LIST_OFFSETS, 2), (ApiKey.FETCH, 6)))
        return framed(HEADER.pack(key, version, 7) + NO_STRING + b"\x7f\xff\xff\xff")

    def _no_tags(self) -> bytes:
        """Tagged fields of the header that are cut off."""
        return framed(HEADER.pack(ApiKey.METADATA, 12, 7) + NO_STRING + b"\x05")


__all__ = ["Rude"]
