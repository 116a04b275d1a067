"""Ports of loopback that pass everything on to another port, until they are cut or hang.

open     bytes pass
cut      all connections are reset, and new ones as well
hanging  connections stay and are accepted, and nothing passes; what was sent arrives when they go on
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
from collections.abc import Callable, Coroutine
from typing import Any

HOST = "127.0.0.1"
CHUNK = 1 << 16
Tap = Callable[[bytes], None]
"""Is given what passes one way of a connection, before it passes."""


class State(enum.Enum):
    """See the module."""

    OPEN = "open"
    CUT = "cut"
    HANGING = "hanging"


class Proxy:
    """One port, on the loop of `Proxies`; `target` is the port behind it.

    The first connection passes what its client sends `first_sends` times, and ends at the next time.  `taps()`, where
    it is set, gives the taps of a new connection: of what its client sends, and of what comes back.
    """

    def __init__(self, target: int, first_sends: int | None = None) -> None:
        self.target = target
        self.port = 0
        self.connections = 0
        self.taps: Callable[[], tuple[Tap, Tap]] | None = None
        self._first_sends = first_sends
        self._state = State.OPEN
        self._passes = asyncio.Event()
        self._passes.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, state: State) -> None:
        """From now on."""
        self._state = state
        if state is State.HANGING:
            self._passes.clear()
            return
        if state is State.CUT:
            self._reset()
        self._passes.set()

    async def reset(self) -> None:
        """Break the connections that are there."""
        self._reset()

    async def close(self) -> None:
        """Listen no more, and end what passes."""
        self._server.close()
        await self.set(State.CUT)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state is State.CUT:
            return
        try:
            back, there = await asyncio.open_connection(HOST, self.target)
        except OSError:
            return
        self._writers.add(there)
        self.connections += 1
        sends = self._first_sends if self.connections == 1 else None
        sent, came = (None, None) if self.taps is None else self.taps()
        pumps = [
            asyncio.create_task(self._pump(reader, there, sent, sends)),
            asyncio.create_task(self._pump(back, writer, came)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            there.transport.abort()
            self._writers.discard(there)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tap: Tap | None,
        most: int | None = None,
    ) -> None:
        chunks = 0
        with contextlib.suppress(OSError):
            while (chunk := await reader.read(CHUNK)) and chunks != most:
                chunks += 1
                await self._passes.wait()
                if tap is not None:
                    tap(chunk)
                writer.write(chunk)
                await writer.drain()


class Proxies:
    """All proxies of a test, on an event loop of their own in a thread."""

    def __init__(self) -> None:
        self._proxies: list[Proxy] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def to(self, target: int, first_sends: int | None = None) -> Proxy:
        """A new port in front of `target`; see `Proxy`."""
        proxy = Proxy(target, first_sends)
        self._proxies.append(proxy)
        self._run(proxy.start())
        return proxy

    def set(self, proxy: Proxy, state: State) -> None:
        """See `Proxy.set`."""
        self._run(proxy.set(state))

    def reset(self, proxy: Proxy) -> None:
        """See `Proxy.reset`."""
        self._run(proxy.reset())

    def close(self) -> None:
        """Nothing passes any more."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        # What is being accepted ends as all that passed does.
        while passing := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(passing)
        # The transports close in the loop's next turn.
        await asyncio.sleep(0)
