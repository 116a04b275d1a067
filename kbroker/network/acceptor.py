"""Accepting many connections at once.

The loop's server accepts one connection in a turn, and a turn may serve a thousand requests.  Thousands of clients that
reconnect at the same moment would fill the kernel's queue, and a client that finds it full tries again only seconds
later.  So each connection that the server makes is followed by a look whether more wait: these are all accepted, and
connected a few in a turn.  One that comes alone costs no more than that look.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine

from kbroker._fast.net.accepting import accept_all
from kbroker.log_output import RateLimitedLog
from kbroker.network.limits import ConnectionLimits

logger = logging.getLogger("kbroker.network")

# Accepted in one call; the other user of descriptors learns of it before the next one.
BATCH = 64
# Connected in a turn of the loop: about a millisecond.
TURN = 32


class CrowdAcceptor:
    """Accepts what waits behind a server's listening socket; `connect` makes a connection of an accepted one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        connect: Callable[[socket.socket], Coroutine[object, None, object]],
        limits: ConnectionLimits,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._family = listening.family
        self._connect = connect
        self._limits = limits
        self._waiting: deque[int] = deque()
        self._tasks: set[asyncio.Task[object]] = set()
        self._complaints = RateLimitedLog(logger)
        self._closed = False

    def look(self) -> None:
        """Accept what waits; called when the server has made a connection."""
        if not self._waiting:
            self._accept()
            if self._waiting:
                self._loop.call_soon(self._admit)

    def _accept(self) -> None:
        """Accepts only while there are descriptors: the server handles the other connections, and errors."""
        while not self._closed and (most := min(BATCH, self._limits.left)) > 0:
            found = accept_all(self._listening.fileno(), most)
            self._waiting.extend(found)
            self._limits.expect(len(found))
            if len(found) < most:
                return

    def close(self) -> None:
        """Close those that are not connected yet, and accept no more."""
        self._closed = True
        self._limits.expect(-len(self._waiting))
        while self._waiting:
            os.close(self._waiting.popleft())

    def _admit(self) -> None:
        self._accept()
        count = min(TURN, len(self._waiting))
        self._limits.expect(-count)
        for _ in range(count):
            sock = socket.socket(self._family, socket.SOCK_STREAM, 0, self._waiting.popleft())
            task = self._loop.create_task(self._connect(sock))
            self._tasks.add(task)
            task.add_done_callback(self._finish)
        if self._waiting:
            self._loop.call_soon(self._admit)

    def _finish(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._complaints.warning("connect", "an accepted connection is lost: %s", task.exception())
