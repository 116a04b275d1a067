"""A controller's connections to brokers, itself included: a queue for each, one request under way at a time.

Requests of one broker are answered in their order; a broker that does not answer holds up no other.  A request that
gets no answer is sent again, as long as the broker is registered: the ports of brokers open after they have registered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.cluster.client import NodeClient, NodeError
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.protocol.messages import Message

logger = logging.getLogger("kbroker.cluster")

RETRY_SECONDS = 0.1
LATE_AFTER = 10
"""So many attempts are made in silence: a broker that starts again is away for longer than one."""
Answered = Callable[[Any], None]


class BrokerChannels(Protocol):
    """Where a controller's requests go."""

    def open(self, node_id: int) -> None:
        """A broker that came; a queue of an earlier one with its id is dropped."""

    def close(self, node_id: int) -> None:
        """A broker that is gone."""

    def send(self, node_id: int, request: Message, version: int, answered: Answered | None = None) -> None:
        """Queue a request; `answered(answer)` when it is answered."""

    def close_all(self) -> None:
        """Drop everything."""


class _Channel:
    """The queue of one broker."""

    __slots__ = ("_client", "_node_id", "_outage", "_queue", "_ready", "_task")

    def __init__(self, node_id: int, client: NodeClient, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self._client = client
        self._queue: deque[tuple[Message, int, Answered | None]] = deque()
        self._ready = asyncio.Event()
        self._outage = Outage(logger, now=loop.time)
        self._task: asyncio.Task[None] | None = loop.create_task(self._run())

    def put(self, request: Message, version: int, answered: Answered | None) -> None:
        self._queue.append((request, version, answered))
        self._ready.set()

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._ready.clear()
                await self._ready.wait()
            request, version, answered = self._queue.popleft()
            answer = await self._answer(request, version)
            if answer is not None and answered is not None:
                try:
                    answered(answer)
                except Exception:
                    logger.exception("the answer of broker %d to %s", self._node_id, type(request).__name__)

    async def _answer(self, request: Message, version: int) -> object:
        name, failures = type(request).__name__, 0
        while True:
            try:
                answer = await self._client.send(request, version)
                self._outage.over("broker %d answers %s", self._node_id, name)
                return answer
            except NodeError as error:
                failures += 1
                if failures >= LATE_AFTER:
                    self._outage.failed("broker %d does not answer %s: %s", self._node_id, name, error)
                await asyncio.sleep(RETRY_SECONDS)
            except ValueError as error:
                logger.error("%s for broker %d can't be sent: %s", name, self._node_id, error)
                return None
            except Exception as error:
                # A defect; the broker must not miss all that is queued behind it.
                self._outage.failed("%s to broker %d: %r", name, self._node_id, error, error=error)
                self._client.disconnect()
                await asyncio.sleep(RETRY_SECONDS)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # It keeps how it ended, and with that this.
        self._client.close()


class NodeChannels:
    """`BrokerChannels` over the network; `client(node_id)` makes a client for a registered broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Callable[[int], NodeClient]) -> None:
        self._loop = loop
        self._client = client
        self._channels: dict[int, _Channel] = {}

    def open(self, node_id: int) -> None:
        """A broker that came; a queue of an earlier one with its id is dropped."""
        self.close(node_id)
        self._channels[node_id] = _Channel(node_id, self._client(node_id), self._loop)

    def close(self, node_id: int) -> None:
        """A broker that is gone."""
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            channel.close()

    def send(self, node_id: int, request: Message, version: int, answered: Answered | None = None) -> None:
        """Queue a request; `answered(answer)` when it is answered."""
        channel = self._channels.get(node_id)
        if channel is not None:
            channel.put(request, version, answered)

    def close_all(self) -> None:
        """Drop everything."""
        for node_id in list(self._channels):
            self.close(node_id)
