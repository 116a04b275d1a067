"""What the supervisor makes of the ends of its workers' processes.

Also of `kbroker.supervision.orphans`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.supervision.supervisor import Supervisor


def test_workers_that_die_together_are_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host would stop for good with the last of its workers, where each by itself comes back."""
    started: list[int] = []
    monkeypatch.setattr(Supervisor, "_start", lambda _self, number: started.append(number))

    async def run() -> bool:
        config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
        supervisor = Supervisor(config, [], 2, asyncio.Event())
        processes = {number: subprocess.Popen(["true"]) for number in (1, 2)}
        for number, slot in supervisor._slots.items():
            supervisor._notify[number] = supervisor._listen_to(number, slot)
            supervisor._processes[number] = processes[number]
            supervisor._lives[number].ready(0.0)
        for number, process in processes.items():
            supervisor._ended(number, os.pidfd_open(process.pid))
        async with asyncio.timeout(60):
            while len(started) < len(processes):
                await asyncio.sleep(0)
        for sock in supervisor._notify.values():
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()
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
