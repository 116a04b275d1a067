"""Brokers of kbroker as processes of one cluster, with the test as their controller."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kbroker.testing.broker import answers_api_versions
from tests.ports import free_port
from tests.replication.cluster.controller import HandController

START_SECONDS = 60.0
SETTINGS = {
    "metrics.listener": "none",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "min.insync.replicas": "2",
}


class MemberProcess:
    """One broker; its directory and port stay over restarts."""

    def __init__(self, node_id: int, directory: Path, settings: dict[str, str]) -> None:
        self.node_id = node_id
        self.directory = directory / f"broker-{node_id}"
        self.port = free_port()
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / f"broker-{node_id}.log"

    @property
    def data(self) -> Path:
        return self.directory

    def launch(self, epoch: int) -> None:
        values = {
            **SETTINGS,
            **self.settings,
            "node.id": str(self.node_id),
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        command = [sys.executable, "-m", "tests.replication.cluster.member", str(epoch)]
        with self.log_path.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *(f"{name}={value}" for name, value in values.items())],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.getcwd()},
            )

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _end(self, number: int) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        status = self.process.wait(60)
        self.process = None
        return status


class Cluster:
    """Members 1 to n and their controller."""

    def __init__(self, directory: Path, count: int, settings: dict[str, str]) -> None:
        self.members = {each: MemberProcess(each, directory, settings) for each in range(1, count + 1)}
        self.controller = HandController()
        self._epochs = itertools.count(100)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.members.values())

    async def start(self, node_id: int) -> None:
        member = self.members[node_id]
        epoch = next(self._epochs)
        member.launch(epoch)
        deadline = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(answers_api_versions, member.port):
            assert member.process is not None and member.process.poll() is None, member.log_path.read_text()
            assert time.monotonic() < deadline, member.log_path.read_text()
            await asyncio.sleep(0.02)
        await self.controller.came(node_id, member.port, epoch)

    async def kill(self, node_id: int, **values: Any) -> None:
        self.members[node_id].kill()
        await self.controller.died(node_id, **values)

    async def stop(self, node_id: int) -> int:
        """In order: the broker asks for its controlled shutdown first."""
        status = await asyncio.to_thread(self.members[node_id].terminate)
        await self.controller.died(node_id)
        return status

    def logs(self) -> str:
        return "\n".join(f"--- {each.node_id}\n{each.log_path.read_text()[-3000:]}" for each in self.members.values())

    def segments(self, topic: str, partition: int = 0) -> dict[int, bytes]:
        """The records of each replica's log, one segment after the other, by node."""
        found = {}
        for node_id, member in self.members.items():
            directory = member.data / f"{topic}-{partition}"
            if directory.exists():
                found[node_id] = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return found


@contextlib.asynccontextmanager
async def running(directory: Path, count: int, settings: dict[str, str] | None = None) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory, count, settings or {})
    await cluster.controller.start()
    try:
        await asyncio.gather(*(cluster.start(each) for each in cluster.members))
        yield cluster
    except BaseException:
        print(cluster.logs())
        raise
    finally:
        for member in cluster.members.values():
            if member.process is not None:
                member.kill()
        await cluster.controller.stop()


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)
