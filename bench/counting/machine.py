"""A machine that stands still: whole brokers on the simulation's loop and network, where nothing is left to chance.

Time moves only when there is nothing to do, the network takes and gives all at once, and a job of an executor runs when
it is next.  So what a request costs is the same each time.  What a broker's code does counts (`collector`); what the
loop, the network and the clients do, does not.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

from bench.counting.collector import Collector
from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from tests.simulation.loop import OUTSIDE, PROCESS, Pace, Process, SimulatedLoop
from tests.simulation.playing import MEMORY
from tests.simulation.sockets import Descriptor, End, Network, Weather
from tests.simulation.surroundings import surroundings

SEED = 2
STILL = Pace(turn_ns=1, served=1.0, look_ns=0, job_ns=1, slow_job=0.0)
CALM = Weather(latencies_ns=(0,), short_read=0.0, partial_write=0.0, no_room=0.0, rooms=(1 << 26,))
PORT = 9092
MOST_TURNS = 100_000
"""For one request."""


class UnansweredError(Exception):
    """A request has no answer, or one with an error."""


class CountedLoop(SimulatedLoop):
    """What brokers run on it counts."""

    collector: Collector
    counted: frozenset[Process] = frozenset()
    """The processes of brokers."""

    def count(self, process: Process, run: Callable[..., Any], *args: Any) -> Any:
        """Call a function, which counts if the process is a broker."""
        if process not in self.counted:
            return run(*args)
        self.collector.resume()
        try:
            return run(*args)
        finally:
            self.collector.pause()

    def _run_handle(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS, OUTSIDE)  # type: ignore[attr-defined]
        self.count(process, super()._run_handle, handle)

    def at(self, when_ns: int, run: Callable[[], None], process: Process = OUTSIDE) -> None:
        super().at(when_ns, lambda: self.count(process, run), process)


class CountedEnd(End):
    """An end of a connection between brokers."""

    def _give(self, protocol: Any) -> None:
        self.network.loop.count(self.process, super()._give, protocol)  # type: ignore[attr-defined]


class Line(End):
    """The broker's end of a connection of a client: it gives what it is fed, and keeps what is sent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.received: list[bytes] = []
        self.received_bytes = 0
        self.is_framed = True
        """Whether what is sent are answers that say how long they are; not under TLS."""
        self._fed = memoryview(b"")

    @property
    def is_answered(self) -> bool:
        """Whether a whole answer has come since the last `ask`."""
        if not self.is_framed or not self.received:
            return bool(self.received)
        return self.received_bytes >= 4 + int.from_bytes(self.received[0][:4], "big")

    def feed(self, data: bytes) -> None:
        """The bytes of a request come, as many at once as the connection has room for."""
        loop: Any = self.network.loop
        self._fed = memoryview(data)
        while self._fed and not self.paused and not self.closed:
            buffer = memoryview(self.protocol.get_buffer(-1))
            size = min(len(buffer), len(self._fed))
            buffer[:size] = self._fed[:size]
            buffer.release()
            self._fed = self._fed[size:]
            loop.count(self.process, self.protocol.buffer_updated, size)

    def look(self, size: int) -> bytes | None:
        data = bytes(self._fed[:size])
        self._fed = self._fed[len(data) :]
        return data

    def takes(self, size: int) -> int:
        return size

    def take(self, data: bytes) -> int:
        self.put(data)
        return len(data)

    def put(self, data: bytes) -> None:
        self.received.append(data)
        self.received_bytes += len(data)

    def write(self, data: bytes) -> None:
        self.put(bytes(data))


class _Client:
    """The other end of a line, of which the broker sees nothing."""

    closed = True
    process = Process("client")
    address = ("127.83.74.250", 30_000)


class CalmNetwork(Network):
    """Its ends count what brokers do with what has come."""

    def _end(self, address: Any, process: Process, kind: type[End] = CountedEnd) -> End:
        return super()._end(address, process, kind)


def host_of(node: int) -> str:
    """Where a broker is."""
    return f"127.83.74.{node}"


class Machine:
    """Brokers of one process; see the module."""

    def __init__(self, collector: Collector) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kbroker-counted-", dir=MEMORY if MEMORY.is_dir() else None))
        self.loop = CountedLoop(SEED)
        assert self.loop.budget is None, "a seed whose histories measure work has a pace of its own"
        self.collector = self.loop.collector = collector
        self.loop.pace = STILL
        self.network = CalmNetwork(self.loop)
        self.network.weather = CALM

    def log_dir(self, node: int) -> Path:
        """Where a broker's partitions are."""
        return self.folder / str(node)

    def settings(self, node: int) -> dict[str, str]:
        """What each broker is set to."""
        return {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{host_of(node)}:{PORT}",
            "log.dirs": str(self.log_dir(node)),
            "metrics.listener": "none",
            "socket.busy.poll.us": "0",  # How often it looks is up to the clock.
        }

    def start(self, node: int, settings: Mapping[str, str]) -> Broker:
        """Start a broker; it is ready at the end."""
        process = Process(f"broker-{node}")
        config = BrokerConfig.from_mapping({**self.settings(node), **settings})

        async def begin() -> Broker:
            broker = Broker(config, self.loop)
            await broker.start()
            return broker

        broker: Broker = self.finish(process.call(self.loop.create_task, begin()))
        self.loop.counted |= {process}
        return broker

    def finish(self, task: asyncio.Task[Any]) -> Any:
        """Turn the loop until a task is done; its result."""
        while not task.done():
            self._turn()
        return task.result()

    def pass_time(self, seconds: float) -> None:
        """What happens within so long."""
        until = self.loop.now_ns + int(seconds * 1e9)
        self.loop.at(until, lambda: None)
        while self.loop.now_ns < until:
            self._turn()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        for _ in range(10_000):
            if condition():
                return
            self.pass_time(0.01)
        raise UnansweredError("it does not come to be so")

    def _turn(self) -> None:
        self.loop._run_once()
        if self.loop.failures:
            raise UnansweredError(self.loop.failures[0]) from self.loop.first_error

    def connect(self, node: int, port: int = PORT) -> Line:
        """A connection to a broker's listener."""
        network = self.network
        server = network.servers[host_of(node), port]
        line = server.context.run(network._end, server.address, server.process, Line)
        line.context = copy_context() if server.context is None else server.context.copy()
        line.peer = _Client()
        line.descriptor = Descriptor()
        network.with_inode[line.descriptor.inode] = line
        line.context.run(self.loop.count, line.process, network._accept, server, line)
        self.settle()
        return line

    def settle(self) -> None:
        """Turn the loop until nothing is left to do now."""
        while self.loop._ready or self.network.has_work():
            self._turn()

    def ask(self, line: Line, data: bytes) -> bytes:
        """The answer to what a client sends; what it left to do is done as well."""
        line.received.clear()
        line.received_bytes = turns = 0
        line.context.run(line.feed, data)
        while not line.is_answered or self.loop._ready:
            self._turn()
            turns += 1
            if turns > MOST_TURNS or (line.closed and not line.is_answered):
                raise UnansweredError(f"no answer after {turns} turns, closed: {line.closed}")
        return b"".join(line.received)


@contextmanager
def machine(collector: Collector) -> Iterator[Machine]:
    """A machine for as long as it is used; there is one for each process."""
    made = Machine(collector)
    loop = made.loop
    logging.disable(logging.WARNING)
    try:
        with surroundings(loop) as threads:
            threads.leave_nothing_to_chance()
            asyncio.set_event_loop(loop)
            loop._thread_id = threading.get_ident()  # type: ignore[attr-defined]
            asyncio._set_running_loop(loop)
            gc.collect()
            try:
                yield made
            finally:
                asyncio._set_running_loop(None)
                asyncio.set_event_loop(None)
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(made.folder, ignore_errors=True)
