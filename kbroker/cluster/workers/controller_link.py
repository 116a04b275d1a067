"""A worker's end of the connection to the controller: its image of the cluster, and calls.

    states      AWAY → FOLLOWING (snapshot taken, and what is published since) → AWAY (worker 1 is gone) → FOLLOWING …

While the controller is away the worker serves what it leads, on the image that it has.  Calls that were under way fail
with NOT_CONTROLLER, as their outcome is not known; new ones wait for WAIT_SECONDS.  When the controller is back the
worker replaces its image with the controller's, says how far its logs go, enters again with the broker epoch that it
had, and reports its lost replicas.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING

from kbroker.cluster.member import StartInterruptedError, unless_stopping
from kbroker.cluster.requests import BrokerEpoch, HeldLog, ReplicaReport
from kbroker.cluster.workers.controller_server import ENTER, REPORT_LOGS
from kbroker.cluster.workers.messages import (
    Answered,
    Call,
    Change,
    Hello,
    MessageError,
    Portion,
    Snapshot,
    encode,
    read,
)
from kbroker.cluster.workers.portions import Portions, send
from kbroker.cluster.workers.quota import ForwardedQuota
from kbroker.errors import KafkaError, NotControllerError, bare
from kbroker.metadata.difference import difference
from kbroker.types import TopicPartition
from kbroker.waiting import set_within

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.quotas.mutation_quota import MutationQuota

logger = logging.getLogger("kbroker.cluster")

RETRY_SECONDS = 0.05
WAIT_SECONDS = 5.0


class LinkState(Enum):
    """Whether the controller is there."""

    AWAY = auto()
    FOLLOWING = auto()
    CLOSED = auto()


Held = Callable[[], Awaitable[Mapping[TopicPartition, HeldLog]]]
"""How far a worker's logs go by now."""


async def _nothing() -> Mapping[TopicPartition, HeldLog]:
    return {}


class ControllerLink:
    """`address` is the supervisor's socket, an abstract name with its @."""

    def __init__(
        self,
        address: str,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event,
        slices: Slices,
    ) -> None:
        self._address = "\0" + address.removeprefix("@")
        self._node_id = node_id
        self._loop = loop
        self._stopping = stopping
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._cache: MetadataCache | None = None
        self._numbers = count()
        self._calls: dict[int, tuple[asyncio.Future[object], MutationQuota | None]] = {}
        self._following = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._broker: BrokerImage | None = None
        self._again: asyncio.Task[None] | None = None
        self._lost: frozenset[TopicPartition] = frozenset()
        self._slices = slices
        self._held: Held = _nothing
        self.state = LinkState.AWAY
        self.epoch = -1
        self.failure: Callable[[str], None] = lambda _reason: None

    async def open(self) -> ClusterImage:
        """Connect; the cluster as it is.  StartInterruptedError."""
        while not self._stopping.is_set():
            try:
                return await self._connect()
            except (OSError, asyncio.IncompleteReadError) as error:
                bare(error)  # The reader keeps the one that ended its connection.
                self._hang_up()
                await asyncio.sleep(RETRY_SECONDS)
        raise StartInterruptedError

    async def _connect(self) -> ClusterImage:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # At once or not at all: it is the same machine.
            sock.connect(self._address)
            self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        except OSError:
            sock.close()
            raise
        self._writer.write(encode(Hello(self._node_id)))
        # Worker 1 may have logs to read for minutes before it answers.
        snapshot = await unless_stopping(self._stopping, read(self._reader))
        if not isinstance(snapshot, Snapshot):
            raise MessageError(f"{type(snapshot).__name__} where the image of the cluster was due")
        return snapshot.image

    def follow(self, cache: MetadataCache) -> None:
        """Let `cache`, which has the image that `open` gave, have what is published since."""
        self._cache = cache
        self._became(LinkState.FOLLOWING)
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _became(self, state: LinkState) -> None:
        self.state = state
        if state is LinkState.FOLLOWING:
            self._following.set()
        else:
            self._following.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("the controller cannot be followed", exc_info=task.exception())
            self.failure(f"the controller cannot be followed: {task.exception()}")

    async def _run(self) -> None:
        while True:
            try:
                await self._read()
            except (OSError, asyncio.IncompleteReadError) as error:
                bare(error)
                self._became(LinkState.AWAY)
                self._hang_up()
                if not self._stopping.is_set():
                    logger.warning("the controller, worker 1, is away; partitions are served as they are")
            try:
                self._take(await self.open())
            except StartInterruptedError:
                return
            self._became(LinkState.FOLLOWING)
            if self._broker is not None:
                # Its answer is among what is read next.
                self._again = self._loop.create_task(self._enter_again())
            logger.info("the controller is back")

    async def _read(self) -> None:
        assert self._reader is not None and self._cache is not None
        pace, portions = self._slices.pace(), Portions()
        while True:
            message = await read(self._reader)
            await pace
            if isinstance(message, Change):
                self._cache.apply(message.delta)
            elif isinstance(message, Portion):
                portions.put(message)
            elif isinstance(message, Answered):
                self._answered(portions.completed(message))

    def _take(self, image: ClusterImage) -> None:
        assert self._cache is not None
        # What an earlier connection had no time to say is still to be said.
        self._lost |= frozenset(_offline(self._cache.image, self._node_id))
        delta = difference(self._cache.image, image)
        if not delta.is_empty():
            self._cache.apply(delta)

    def _answered(self, answer: Answered) -> None:
        future, quota = self._calls.pop(answer.number, (None, None))
        if quota is not None:
            for partitions in answer.charged:
                try:
                    quota.record(partitions)
                except KafkaError:
                    # Other requests of the client have used it up meanwhile; this one is done.
                    break
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(NotControllerError("the controller went away"))

    # Calls

    async def call(self, method: str, *arguments: object, quota: MutationQuota | None = None) -> object:
        """A method of the controller.  Its errors, and NotControllerError where it is away."""
        if self.state is LinkState.AWAY and not await set_within(self._following, WAIT_SECONDS):
            raise NotControllerError("the controller is away")
        if self._writer is None:
            raise NotControllerError("the controller is away")
        writer, number = self._writer, next(self._numbers)
        future: asyncio.Future[object] = self._loop.create_future()
        self._calls[number] = future, quota
        call = Call(number, method, arguments, None if quota is None else ForwardedQuota(quota))

        def write(frame: bytes) -> None:
            if self._writer is writer:
                writer.write(frame)

        await send(write, call, self._slices.pace())
        try:
            return await future
        finally:
            del future  # It keeps its error, and the error this frame.

    async def report_logs(self, held: Held) -> None:
        """Say what this worker holds after its start, and again whenever the controller has started; wait until it may
        lead.  StartInterruptedError."""
        self._held = held
        logs = await held()
        while True:
            try:
                await unless_stopping(self._stopping, self.call(REPORT_LOGS, self._node_id, logs))
                return
            except NotControllerError:
                logger.warning("the controller is away; this worker reports its logs when the controller is back")

    async def enter(
        self, broker: BrokerImage, report: ReplicaReport, held: Mapping[TopicPartition, HeldLog] | None = None
    ) -> BrokerEpoch:
        """Become a member; again after each time that the controller was away, with what this worker holds by then."""
        entered = await self.call(ENTER, broker, report, held)
        assert isinstance(entered, BrokerEpoch)
        self.epoch = entered.epoch
        self._broker = replace(broker, epoch=entered.epoch)
        return entered

    async def _enter_again(self) -> None:
        assert self._broker is not None
        # What this worker has it has not lost, whatever its directories were like at its own start.
        held = {name: replace(log, is_unclean=False, is_cut=False) for name, log in (await self._held()).items()}
        try:
            await self.enter(self._broker, ReplicaReport(offline=self._lost), held)
            self._lost = frozenset()
        except NotControllerError:
            return  # It went away again.
        except KafkaError as error:
            self.failure(f"the controller does not take this worker back: {error}")

    def close(self) -> None:
        """Hang up for good: the controller takes the worker for gone."""
        self._became(LinkState.CLOSED)
        for task in (self._task, self._again):
            if task is not None:
                task.cancel()
        self._task = self._again = None  # They keep how they ended, and with that this.
        self._hang_up()


def _offline(image: ClusterImage, node_id: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, each.partition)
        for topic in image.topics.values()
        for each in topic.partitions
        if node_id in each.offline_replicas
    ]
