"""A node's controller as its replica begins to lead: activation that fails, and a lead that ends amid it.

Of `kbroker.assembly.quorum_node`; also of `kbroker.cluster.controller.activation`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.assembly import quorum_node
from kbroker.assembly.quorum_node import NodeController
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.raft.quorum_stats import QuorumStats
from kbroker.config import BrokerConfig
from kbroker.errors import NotControllerError
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.features import METADATA_VERSION
from tests.cluster.controller.led import CLUSTER, NODE_ID, StandInLog, bootstrap
from tests.unbroken import UNBROKEN


class Lead(StandInLog):
    """What `RaftReplica` gives a controller that begins."""

    is_over = False

    def lose(self) -> None:
        self.is_over = True
        super().lose()


class Bench:
    """The controller of a node whose replica leads when a test says so."""

    def __init__(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        self.metadata = ClusterMetadata(CLUSTER, UNBROKEN)
        config = BrokerConfig.from_mapping({"node.id": NODE_ID})
        cache = MetadataCache(self.metadata.image)
        self.metadata.attach(cache)
        raft = Mock()
        raft.replica.voter_ids.return_value = [NODE_ID]
        raft.replica.stats = QuorumStats(loop.time)
        parts = Mock(metadata=self.metadata, config=config, slices=UNBROKEN, clock=SYSTEM_CLOCK, loop=loop, hosts=None)
        parts.directory.path = str(directory)
        self.made = NodeController(parts, raft, BrokerSettings(config, cache, NODE_ID))
        (self.begun, self.ended), _ = raft.replica.on_lead.call_args

    def leads(self, epoch: int) -> Lead:
        """Another lead begins."""
        lead = Lead(self.metadata, epoch)
        self.begun(lead)
        return lead


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def played(directory: Path, play: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench(directory)
        try:
            await asyncio.wait_for(play(bench), 30)
        finally:
            bench.made.close()

    asyncio.run(run())


def test_an_activation_that_fails_costs_the_lead_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster would have a leader that decides nothing, and no other would be elected."""
    found: list[Any] = []
    monkeypatch.setattr(quorum_node, "first_records", lambda _files, _path: found)

    async def play(bench: Bench) -> None:
        failing = bench.leads(1)
        await until(lambda: failing.resigned is not None)
        assert "it cannot begin to decide" in (failing.resigned or "")
        assert "metadata.version" in (failing.resigned or "")
        bench.ended()
        assert not bench.made.is_active()
        assert not failing.batches
        assert bench.made.figures()["kbroker_controller_errors"] == 1
        assert "cannot begin to decide" in caplog.text
        with pytest.raises(NotControllerError):
            await bench.made.deciding.create_topics([])
        found.extend(bootstrap())
        works = bench.leads(2)
        await until(bench.made.is_active)
        await bench.made.deciding.all_committed()
        assert METADATA_VERSION in bench.metadata.recorded.features.chosen
        assert bench.made.figures()["kbroker_controller_active"] == 1
        assert works.resigned is None

    played(tmp_path, play)


def test_a_lead_that_ends_while_its_first_records_are_read_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of a new cluster would go to another leader's epoch, or the next lead find no controller."""
    began, may_end = threading.Event(), threading.Event()

    def read(_files: object, _path: str) -> list[Any]:
        began.set()
        assert may_end.wait(30)
        return bootstrap()

    monkeypatch.setattr(quorum_node, "first_records", read)

    async def play(bench: Bench) -> None:
        first = bench.leads(1)
        await until(began.is_set)
        first.lose()
        bench.ended()
        second = bench.leads(2)
        may_end.set()
        await until(bench.made.is_active)
        assert bench.made.deciding.term == 2
        assert not first.batches and first.resigned is None
        assert len(second.batches) == 1
        assert bench.made.figures()["kbroker_controller_errors"] == 0

    played(tmp_path, play)


def test_a_lead_that_ends_while_what_was_before_is_committed_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller would be active in an epoch that has passed, over records that another leader may take back."""
    monkeypatch.setattr(quorum_node, "first_records", lambda _files, _path: bootstrap())

    async def play(bench: Bench) -> None:
        first = Lead(bench.metadata, 1)
        first.end_offset += 1  # A record that is not committed yet.
        bench.begun(first)
        await until(lambda: bench.made.deciding._elected is first)
        first.lose()
        bench.ended()
        await until(lambda: len(bench.made._tasks) == 1)  # The chores alone.
        assert not bench.made.is_active()
        assert not first.batches and first.resigned is None
        bench.leads(2)
        await until(bench.made.is_active)
        assert bench.made.deciding.term == 2

    played(tmp_path, play)
