"""What the supervisor makes of the ends of its workers' processes.

Also of `kbroker.supervision.orphans`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.host.service_manager import named, service_manager
from kbroker.supervision.supervisor import Supervisor
from kbroker.supervision.worker_http import fetch
from kbroker.supervision.worker_life import WorkerState
from tests.workers.processes import Workers


def test_workers_that_die_together_are_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host would stop for good with the last of its workers, where each by itself comes back."""
    started: list[int] = []
    monkeypatch.setattr(Supervisor, "_start", lambda _self, number: started.append(number))

    async def run() -> bool:
        config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
        supervisor = Supervisor(config, [], 2, asyncio.Event())
        processes = {number: subprocess.Popen(["true"]) for number in (1, 2)}
        for number in supervisor._slots:
            supervisor._listen_to(number).close()
            supervisor._processes[number] = processes[number]
            supervisor._lives[number].ready(0.0)
        for number, process in processes.items():
            supervisor._ended(number, os.pidfd_open(process.pid))
        async with asyncio.timeout(60):
            while len(started) < len(processes):
                await asyncio.sleep(0)
        assert not supervisor._notify
        supervisor._controller_socket.close()
        return supervisor._gone.is_set()

    assert not asyncio.run(run())
    assert sorted(started) == [1, 2]


def test_a_worker_that_cannot_be_started_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of memory or descriptors at one moment it would be away until the host is started again."""
    outcomes = [OSError(11, "Resource temporarily unavailable"), None]
    started: list[int] = []

    def start(_self: Supervisor, number: int) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        started.append(number)

    monkeypatch.setattr(Supervisor, "_start", start)

    async def run() -> None:
        config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
        supervisor = Supervisor(config, [], 2, asyncio.Event())
        life = supervisor._lives[2]
        life.ready(0.0)
        supervisor._died(2, "has ended")
        async with asyncio.timeout(60):
            while not started:
                await asyncio.sleep(0)
        assert life.restart_count == 2
        assert not supervisor._gone.is_set()
        supervisor._controller_socket.close()

    asyncio.run(run())
    assert started == [2]


def test_no_other_process_can_speak_as_a_worker(tmp_path: Path) -> None:
    """Any user of the machine could call workers ready that are not, write into /readyz, and keep a dead one alive."""
    workers = Workers(tmp_path, 2)
    try:
        workers.up()
        assert workers.process is not None
        pids = [workers.process.pid, *(workers.worker_pid(number) for number in (1, 2))]
        rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
        named_datagram_sockets = {row[6] for row in rows if row[4] == "0002" and len(row) > 7}
        own = {str(Path(each).readlink()) for pid in pids for each in Path(f"/proc/{pid}/fd").iterdir()}
        assert not {inode for inode in named_datagram_sockets if f"socket:[{inode}]" in own}
        # What the workers themselves say is heard: they are ready, and give signs of life.
        assert workers.ready()[0] == 200
    finally:
        workers.stop()


def test_what_a_worker_says_comes_by_what_it_has_inherited(tmp_path: Path) -> None:
    """A worker that cannot be heard is killed as one that hangs."""

    async def run() -> WorkerState:
        supervisor = Supervisor(BrokerConfig.from_mapping({"log.dirs": str(tmp_path)}), [], 2, asyncio.Event())
        workers_end = supervisor._listen_to(2)
        manager = service_manager({"NOTIFY_SOCKET": named(workers_end)})
        assert manager is not None and not os.get_inheritable(workers_end.fileno())
        workers_end.detach()
        manager._send("STATUS=ready\nREADY=1")
        async with asyncio.timeout(60):
            while supervisor._lives[2].state is WorkerState.STARTING:
                await asyncio.sleep(0)
        manager.close()
        supervisor._hear_no_more(2)
        supervisor._controller_socket.close()
        return supervisor._lives[2].state

    assert asyncio.run(run()) is WorkerState.READY


def test_pages_of_a_worker_are_not_taken_from_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker is away any user may have its name: its metrics would be made up, its viewers' passwords read."""
    address = f"@kbroker-test-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as held:
        held.bind("\0" + address[1:])
        held.listen(1)
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        # The machine's administrator may do all of that anyway.
        monkeypatch.setattr("kbroker.metrics.listener_address.ADMINISTRATOR", user + 2)
        with pytest.raises(PermissionError):
            asyncio.run(fetch(address, "/metrics"))


@pytest.mark.parametrize("address", ["fd:", "fd:x", "fd:999999"])
def test_a_descriptor_that_is_none_is_an_error(address: str) -> None:
    """The supervisor would wait for a worker that it cannot hear."""
    with pytest.raises(OSError):
        service_manager({"NOTIFY_SOCKET": address})
