"""Starts the workers of a host, starts those again that die, and stops all of them with itself.

Each worker is a `kbroker start` with settings of its own (`cluster.workers.worker_slot`).  A worker's messages to its
service manager (sd_notify) come to this process, which alone speaks to the real one, for all.  They come over a pair of
sockets that the worker has inherited: no other process can send to it, or fill its queue.  A worker whose loop has
given no sign of life for a session (`broker.session.timeout.ms`) hangs: the supervisor kills it, and says so to worker
1, as a process that waits for a disk ends only when the disk answers.

Stop: worker 1, the controller, has the signal first, so that it moves nothing when the others go.  A supervisor that
is killed takes its workers along (`orphans`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker import __version__, log_output
from kbroker.assembly.console import bodies_of
from kbroker.cluster.workers.messages import Gone, encode
from kbroker.cluster.workers.worker_slot import WorkerSlot, shifted, worker_settings
from kbroker.host.service_manager import EXTENSION_US, channel, named, service_manager
from kbroker.host.stop_signals import StopSignals
from kbroker.metrics.http_guard import names_of
from kbroker.metrics.listener_address import console_address
from kbroker.metrics.readiness import Problem, Readiness, ReadyState
from kbroker.network.ports_in_use import why_not_listened
from kbroker.own_python import module_command
from kbroker.security.http_access import http_access
from kbroker.supervision.silence import Silence
from kbroker.supervision.worker_life import WorkerLife, WorkerState
from kbroker.supervision.worker_pages import WorkerPages, start_pages

if TYPE_CHECKING:
    import ssl

    from kbroker.config import BrokerConfig
    from kbroker.security.tls.http_context import HttpContext

logger = logging.getLogger("kbroker.supervisor")

MOST_WAITING = 512
STOPPING_SECONDS = 0.5
NOTIFY_BYTES = 4096
PATIENCE_SECONDS = EXTENSION_US / 1e6
"""For a worker that starts or stops, whose loop may not turn yet or any more."""


class Supervisor:
    """`arguments` are those of the command line: the file of settings, if any, and overrides."""

    def __init__(self, config: BrokerConfig, arguments: Sequence[str], count: int, stopping: asyncio.Event) -> None:
        """WorkerSlotError where there is no room for so many workers."""
        self._config = config
        self._arguments = list(arguments)
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()
        self._settings = {number: worker_settings(config, number, count) for number in range(1, count + 1)}
        address = f"@kbroker-{secrets.token_hex(12)}"
        self._controller_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._controller_socket.bind("\0" + address[1:])
        self._controller_socket.listen(MOST_WAITING)
        descriptor = self._controller_socket.fileno()
        self._slots = {
            number: WorkerSlot(number, count, address, descriptor if number == 1 else -1) for number in self._settings
        }
        self._lives = {number: WorkerLife() for number in self._settings}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._notify: dict[int, socket.socket] = {}
        self._said: dict[int, str] = {}
        self._silence = Silence(config.get("broker.session.timeout.ms") / 1000)
        # Two may be late or lost.
        self._heartbeat = min(config.get("broker.heartbeat.interval.ms") / 1000, self._silence.session / 3)
        self._pages: WorkerPages | None = None
        self._stores: HttpContext | None = None
        self._gone = asyncio.Event()
        self._ready = asyncio.Event()
        self._worker_1_stops = asyncio.Event()
        self.readiness = Readiness()
        self.readiness.watch(self._problems)

    async def run(self) -> int:
        """Serve until `stopping`, or until the host cannot start; the exit code."""
        manager = service_manager()
        if manager is not None:
            manager.follow(self.readiness, self._loop)
        self._pages = await start_pages(
            self._config.get("metrics.listener"),
            self._slots,
            self._lives,
            self.readiness,
            names_of(self._config),
            http_access(self._config, dict, None),
            self._metrics_context,
            self._config.get("kbroker.metrics.names"),
            bodies_of(self._config),
            has_console=self._config.get("kbroker.console.enable"),
        )
        for number in self._slots:
            self._start(number)
        self._look_later()
        stop = self._loop.create_task(self._stopping.wait())
        ready = self._loop.create_task(self._ready.wait())
        gone = self._loop.create_task(self._gone.wait())
        await asyncio.wait((stop, ready, gone), return_when=asyncio.FIRST_COMPLETED)
        if self._ready.is_set() and not self._stopping.is_set():
            self.readiness.move(ReadyState.READY)
            addresses = self._addresses()
            logger.info("kbroker %s: %d workers are ready on %s", __version__, len(self._lives), addresses)
        await asyncio.wait((stop, gone), return_when=asyncio.FIRST_COMPLETED)
        has_failed = not self._stopping.is_set()
        await self._stop()
        if self._pages is not None:
            await self._pages.close()
        logger.info("all workers have stopped")
        return 1 if has_failed else 0

    def _addresses(self) -> str:
        config, pages = self._config, self._pages
        clients = ", ".join(map(str, config.listeners)) + " and the ports after it"
        if pages is None or not config.get("kbroker.console.enable"):
            return clients
        return f"{clients}, console on {console_address(config.get('metrics.listener'), pages.port)}"

    # Processes

    def _start(self, number: int) -> None:
        slot = self._slots[number]
        command = module_command("kbroker.cli", "start", *self._arguments)
        for key, value in self._settings[number].items():
            command += ["--override", f"{key}={value}"]
        command += ["--slot", slot.text(), "--parent", str(os.getpid())]
        self._said[number] = "starting"
        self._silence.heard(number)
        with self._listen_to(number) as workers_end:
            process = self._processes[number] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(workers_end.fileno(), *((slot.descriptor,) if slot.is_controller else ())),
                env={
                    **os.environ,
                    "NOTIFY_SOCKET": named(workers_end),
                    # A sign of life is sent every half of it.
                    "WATCHDOG_USEC": str(round(self._heartbeat * 2e6)),
                },
                # A terminal's signals come here alone.
                process_group=0,
            )
        try:
            watched = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            del self._processes[number]
            raise
        self._loop.add_reader(watched, self._ended, number, watched)

    def _ended(self, number: int, watched: int) -> None:
        self._loop.remove_reader(watched)
        os.close(watched)
        process = self._processes.pop(number)
        status = process.wait()
        # With its last messages a worker says that it stops.
        self._hear(number)
        self._hear_no_more(number)
        self._died(number, f"has ended ({_described(status)})")

    def _died(self, number: int, how: str) -> None:
        life = self._lives[number]
        pause = life.died(self._loop.time())
        if pause is not None:
            again = f" in {pause:.1f} s" if pause else ""
            logger.error("worker %d %s; it is started again%s", number, how, again)
            self._loop.call_later(pause, self._start_again, number)
            return
        if life.state is WorkerState.FAILED:
            logger.error("worker %d could not start: it %s", number, how)
        self._gone.set()

    def _start_again(self, number: int) -> None:
        life = self._lives[number]
        if life.state is WorkerState.WAITING:
            life.restarted()
            try:
                self._start(number)
            except OSError as error:
                self._died(number, f"cannot be started ({error})")

    async def _stop(self) -> None:
        self.readiness.move(ReadyState.STOPPING)
        self._gone.clear()
        ending = [number for number, life in self._lives.items() if life.stop() and number in self._processes]
        if not ending:
            return
        for number in ending:
            process = self._processes.get(number)
            if process is None:
                # It has ended by itself while worker 1 stopped.
                continue
            process.send_signal(signal.SIGTERM)
            if number == 1:
                try:
                    async with asyncio.timeout(STOPPING_SECONDS):
                        await self._worker_1_stops.wait()
                except TimeoutError:
                    pass
        while self._processes:
            self._gone.clear()
            await self._gone.wait()

    # Workers that hang

    def _metrics_context(self) -> ssl.SSLContext:
        """That of the metrics listener, which follows its key store."""
        from kbroker.security.tls.http_context import HttpContext

        self._stores = HttpContext.of(self._config)
        return self._stores.context

    def _look_later(self) -> None:
        self._loop.call_later(self._silence.every, self._look)

    def _look(self) -> None:
        self._look_later()
        if self._stores is not None:
            self._stores.refresh()
        for number, process in self._processes.items():
            self._hear(number)
            life = self._lives[number]
            patience = 0.0 if life.state is WorkerState.READY else PATIENCE_SECONDS
            if life.state is not WorkerState.SILENT and self._silence.look(number, patience):
                self._give_up(number, process, max(self._silence.session, patience))

    def _give_up(self, number: int, process: subprocess.Popen[bytes], seconds: float) -> None:
        """After the kill the worker executes no more instructions, so others may lead its partitions."""
        logger.error("worker %d has not answered for %.1f s: it is killed", number, seconds)
        process.kill()
        self._lives[number].silent()
        self._silence.heard(number)
        if number == 1:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            sock.connect("\0" + self._slots[number].address[1:])
            sock.send(encode(Gone(process.pid)))

    # What workers say

    def _listen_to(self, number: int) -> socket.socket:
        """The worker's end of a new channel: what its predecessor said last cannot count as its own."""
        self._hear_no_more(number)
        own, workers_end = channel()
        self._notify[number] = own
        self._loop.add_reader(own.fileno(), self._hear, number)
        return workers_end

    def _hear_no_more(self, number: int) -> None:
        sock = self._notify.pop(number, None)
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            sock.close()

    def _hear(self, number: int) -> None:
        while True:
            try:
                text = self._notify[number].recv(NOTIFY_BYTES).decode(errors="replace")
            except OSError:
                return
            self._silence.heard(number)
            self._take(number, text)

    def _take(self, number: int, text: str) -> None:
        said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        self._said[number] = said.get("STATUS", self._said.get(number, ""))
        if "STOPPING" in said and number == 1:
            self._worker_1_stops.set()
        if "READY" in said:
            self._lives[number].ready(self._loop.time())
            if all(life.was_ready for life in self._lives.values()):
                self._ready.set()
        if self.readiness.state is ReadyState.STARTING:
            waiting = (each for each, life in self._lives.items() if life.state is WorkerState.STARTING)
            self.readiness.describe("; ".join(f"worker {each} is {self._said[each]}" for each in waiting))

    def _problems(self) -> Iterable[Problem]:
        for number, life in self._lives.items():
            if life.state is not WorkerState.READY:
                if life.state is WorkerState.SILENT:
                    yield Problem(f"worker {number} hangs, was killed and has not ended yet", stops_service=True)
                    continue
                said = "to be started again" if life.state is WorkerState.WAITING else self._said[number]
                yield Problem(f"worker {number} has died and is {said}", stops_service=True)


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


async def _serve(config: BrokerConfig, arguments: Sequence[str], count: int, signals: StopSignals) -> int:
    stopping = asyncio.Event()
    signals.attach(asyncio.get_running_loop(), stopping.set)
    if stopping.is_set():
        return 0
    why = why_not_listened(shifted(each, number) for number in range(1, count + 1) for each in config.listeners)
    if why is not None:
        logger.error("cannot start: %s", why)
        return 1
    status = await Supervisor(config, arguments, count, stopping).run()
    signals.finish()
    return status


def run(config: BrokerConfig, arguments: Sequence[str], count: int) -> int:
    """Run `count` workers until a signal ends it; the exit code."""
    signals = StopSignals()
    import uvloop

    log_output.setup(config.get("kbroker.log.format"), config.get("kbroker.log.level"))
    return uvloop.run(_serve(config, arguments, count, signals))
