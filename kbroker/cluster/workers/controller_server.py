"""Worker 1's end of the connections of the other workers: their calls to the controller, and what it publishes.

The supervisor owns the listening socket, so a worker that connects while worker 1 is being restarted waits in its
backlog.  A connection's end is the end of its worker, at once: the kernel closes it with the process, or the supervisor
says that the process, which hangs, was killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kbroker.cluster.requests import BrokerEpoch
from kbroker.cluster.workers.log_reports import LogReports
from kbroker.cluster.workers.messages import (
    Answered,
    Call,
    Change,
    Gone,
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
from kbroker.log_output import RateLimitedLog

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.cluster.requests import HeldLog
    from kbroker.cluster.workers.host_controller import HostController
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

ENTER = "enter"
REPORT_LOGS = "report_logs"
METHODS = frozenset(
    {
        "ready",
        "create_topics",
        "auto_create_topics",
        "ensure_internal_topic",
        "create_partitions",
        "delete_topics",
        "alter_configs",
        "alter_client_quotas",
        "alter_security",
        "alter_partitions",
        "elect_leaders",
        "alter_reassignments",
        "report_replicas",
        "unregister_broker",
        "controlled_shutdown",
        "allocate_producer_ids",
        "update_features",
        ENTER,
        REPORT_LOGS,
    }
)
"""What a worker may call."""
REMIND_SECONDS = 300.0
"""So often the log says again that connections are refused: any process of the machine may connect again and again."""
_CREDENTIALS = struct.Struct("=iii")


class ControllerServer:
    """`controller` decides, `cache` has what it publishes."""

    def __init__(
        self, controller: HostController, cache: MetadataCache, loop: asyncio.AbstractEventLoop, slices: Slices
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._loop = loop
        self._slices = slices
        self._server: asyncio.AbstractServer | None = None
        self._writers: dict[asyncio.StreamWriter, int] = {}
        """With the process ids of the workers."""
        self._connected: dict[asyncio.StreamWriter, int] = {}
        """With their node ids."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._come = asyncio.Event()
        self._refusals = RateLimitedLog(logger, REMIND_SECONDS)
        self._entered: dict[int, asyncio.StreamWriter] = {}
        """By worker, the connection over which it has entered last."""
        self.log_reports = LogReports(controller, loop)
        cache.subscribe(self._publish)

    @property
    def present(self) -> set[int]:
        """The workers that are there."""
        return set(self._entered)

    def is_connected(self, node_id: int) -> bool:
        """Whether a worker's process is there, which may have yet to read its logs."""
        return node_id in self._connected.values()

    async def listen(self, sock: socket.socket) -> None:
        """Serve the workers that connect to a listening Unix socket."""
        self._server = await asyncio.start_unix_server(self._serve, sock=sock)

    async def gathered(self, node_ids: set[int], seconds: float, stopping: asyncio.Event) -> set[int]:
        """Wait until all of these workers have come, for so long or until `stopping`; those that have not."""
        coming = self._loop.create_task(self._all_of(node_ids))
        stop = self._loop.create_task(stopping.wait())
        await asyncio.wait((coming, stop), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()
        stop.cancel()
        return node_ids - self.present

    async def _all_of(self, node_ids: set[int]) -> None:
        while not node_ids <= self.present:
            self._come.clear()
            await self._come.wait()

    def _publish(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        if self._writers:
            frame = encode(Change(delta))
            for writer in self._writers:
                writer.write(frame)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        entered: BrokerEpoch | None = None
        node_id = -1
        try:
            process_id, user = _peer(writer)
            if user != os.geteuid():
                text = "a connection of user %d to the socket of the workers is refused: they are of user %d"
                self._refusals.warning(user, text, user, os.geteuid())
                return
            hello = await read(reader)
            if isinstance(hello, Gone):
                self._cut_off(hello.process_id)
                return
            if not isinstance(hello, Hello):
                raise MessageError("not a worker of this host")
            node_id = hello.node_id
            # In one turn of the loop: all that is published from here on comes behind it.
            writer.write(encode(Snapshot(self._cache.image)))
            self._writers[writer] = process_id
            self._connected[writer] = node_id
            pace, portions = self._slices.pace(), Portions()
            while True:
                call = await read(reader)
                await pace
                if isinstance(call, Portion):
                    portions.put(call)
                    continue
                if not isinstance(call, Call):
                    raise MessageError(f"{type(call).__name__} is no call")
                call = portions.completed(call)
                if call.method == ENTER:
                    *arguments, held = call.arguments
                    answer = await self._answer(replace(call, arguments=tuple(arguments)))
                    if isinstance(answer.value, BrokerEpoch):
                        entered = answer.value
                        self._entered[node_id] = writer
                        self.log_reports.arrived(node_id, cast("Mapping[TopicPartition, HeldLog] | None", held))
                        self._come.set()
                    writer.write(encode(answer))
                else:
                    task = self._loop.create_task(self._answer_later(call, writer))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, OSError) as error:
            bare(error)  # The reader keeps the one that ended its connection.
        except MessageError as error:
            self._refusals.error(("worker", node_id), "a connection of worker %d ends: %s", node_id, error)
        finally:
            self._writers.pop(writer, None)
            self._connected.pop(writer, None)
            writer.close()
        if entered is not None:
            if self._entered.get(node_id) is writer:
                del self._entered[node_id]
            await self._lost(entered)

    def _cut_off(self, process_id: int) -> None:
        """What was sent to a process that hangs is not waited for."""
        for writer, each in self._writers.items():
            if each == process_id:
                writer.transport.abort()

    async def _lost(self, broker: BrokerEpoch) -> None:
        try:
            await self._controller.lost(broker, lambda: broker.node_id in self._entered)
        except KafkaError as error:
            logger.error("worker %d is gone, and it cannot be stored who leads now: %s", broker.node_id, error)

    async def _answer_later(self, call: Call, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(call)

        def write(frame: bytes) -> None:
            if writer in self._writers:
                writer.write(frame)

        await send(write, answer, self._slices.pace())

    async def _answer(self, call: Call) -> Answered:
        if call.method not in METHODS:
            return Answered(call.number, error=NotControllerError())
        quota = call.quota if isinstance(call.quota, ForwardedQuota) else None
        named = {} if quota is None else {"quota": quota}
        subject: object = self.log_reports if call.method == REPORT_LOGS else self._controller
        try:
            value = await getattr(subject, call.method)(*call.arguments, **named)
        except KafkaError as error:
            return Answered(call.number, error=bare(error))
        except Exception as error:
            logger.exception("%s of a worker", call.method)
            return Answered(call.number, error=KafkaError(f"{call.method}: {error}"))
        return Answered(call.number, value, charged=() if quota is None else tuple(quota.charged))

    def close(self) -> None:
        """Hang up."""
        self.log_reports.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()
        self._writers.clear()


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """The process at the other end, and its user."""
    sock = writer.get_extra_info("socket")
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process_id, user, _ = _CREDENTIALS.unpack(peer)
    return process_id, user
