"""The joint between a broker and its cluster: a start and a stop go the same way for every kind, known or not.

Also of `kbroker.assembly.membership.controlled_shutdown`, `kbroker.assembly.membership.replicated_membership`,
`kbroker.assembly.membership.replication_parts`, `kbroker.assembly.membership.stored_metadata`,
`kbroker.assembly.membership.workers`, `kbroker.metadata.spare_file`.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop

import kbroker
from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
from kbroker.assembly.membership.single_node import SingleNode
from kbroker.broker import Broker
from kbroker.cluster.member import StartInterruptedError
from kbroker.config import BrokerConfig
from kbroker.metadata.image import ClusterImage
from kbroker.metrics.readiness import Problem
from kbroker.network.listener import Listener
from kbroker.storage.directories.log_dirs import OpenedDirs

PACKAGE = Path(kbroker.__file__).parent
ROOM = PACKAGE / "assembly" / "membership"
JOINT = {"choice", "cluster_membership", "settings"}


class FencedMembership(SingleNode):
    """A kind that no module names: it may serve once it is unfenced, as by a quorum of controllers."""

    def __init__(self, broker: BrokerParts) -> None:
        super().__init__(broker)
        self.steps: list[str] = []
        self.unfenced = asyncio.Event()
        self._stopping = broker.stopping

    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        self.steps.append("join")
        return await super().join(dirs)

    def connect(self, parts: MetadataParts) -> None:
        self.steps.append("connect")
        super().connect(parts)

    async def catch_up(self) -> ClusterImage:
        self.steps.append("catch_up")
        return await super().catch_up()

    async def report_logs(self) -> None:
        self.steps.append("report_logs")
        await super().report_logs()

    async def wait_for_others(self) -> None:
        self.steps.append("wait_for_others")

    async def serve(self, listeners: Sequence[Listener]) -> None:
        self.steps.append(f"serve {[each.name for each in listeners if each.port]}")
        unfenced, stop = (asyncio.ensure_future(each.wait()) for each in (self.unfenced, self._stopping))
        await asyncio.wait((unfenced, stop), return_when=asyncio.FIRST_COMPLETED)
        unfenced.cancel()
        stop.cancel()
        if self._stopping.is_set():
            raise StartInterruptedError
        self.steps.append("unfenced")

    def problems(self) -> list[Problem]:
        return [Problem("the quorum says so")]

    async def leave(self) -> None:
        self.steps.append("leave")

    async def close(self) -> None:
        self.steps.append("close")

    def release(self) -> None:
        self.steps.append("release")
        super().release()


START = ["join", "connect", "catch_up", "report_logs", "wait_for_others", "serve ['PLAINTEXT']"]
STOP = ["leave", "close", "release"]


def fenced(folder: Path, listeners: str = "PLAINTEXT://127.0.0.1:0") -> tuple[Broker, FencedMembership]:
    values = {"log.dirs": str(folder), "listeners": listeners, "metrics.listener": "none"}
    broker = Broker(
        BrokerConfig.from_mapping(values), asyncio.get_running_loop(), asyncio.Event(), make_membership=FencedMembership
    )
    assert isinstance(broker.membership, FencedMembership)
    return broker, broker.membership


def test_a_kind_of_membership_that_no_module_names_starts_serves_and_stops(tmp_path: Path) -> None:
    """A new kind of cluster would need branches all over the broker."""

    async def body() -> None:
        broker, membership = fenced(tmp_path)
        start = asyncio.ensure_future(broker.start())
        while START[-1] not in membership.steps:
            await asyncio.sleep(0)
        assert broker.readiness.text.startswith("starting")
        membership.unfenced.set()
        await start
        assert broker.readiness.look() == (True, "ready, with a problem:\n- the quorum says so")
        await broker.stop()
        assert membership.steps == [*START, "unfenced", *STOP]

    uvloop.run(body())


def test_a_start_that_waits_for_its_cluster_is_ended_by_a_stop(tmp_path: Path) -> None:
    """A broker that is not let in could not be stopped in order."""

    async def body() -> None:
        broker, membership = fenced(tmp_path)
        start = asyncio.ensure_future(broker.start())
        while START[-1] not in membership.steps:
            await asyncio.sleep(0)
        broker.node.stopping.set()
        await start
        assert broker.readiness.text.startswith("starting")
        await broker.stop()
        assert membership.steps == [*START, *STOP]

    uvloop.run(body())


def test_a_start_that_fails_leaves_the_cluster(tmp_path: Path) -> None:
    """Others would take a broker for alive whose process has gone, and its directories would stay locked."""

    async def body() -> None:
        broker, membership = fenced(tmp_path, listeners="PLAINTEXT://192.0.2.1:9092")
        with pytest.raises(OSError, match=r"192\.0\.2\.1"):
            await broker.start()
        await broker.give_up()
        assert membership.steps == [*START[:-1], "release", "close"]
        again, _ = fenced(tmp_path)
        again.log_manager.open_dirs()
        again.release()

    uvloop.run(body())


def test_only_the_room_names_kinds_of_membership() -> None:
    """A branch on the kind would come back, and the next kind would have to be written into it."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if ROOM in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kbroker.assembly.membership."):
                kind = str(node.module).rpartition(".")[2]
                if kind not in JOINT and kind != "replication_parts":
                    found.append(f"{path.relative_to(PACKAGE)}: {kind}")
    assert not found
