"""Histories of an observer of the controllers' quorum on the simulated machine: its disk, its deaths, and the model.

The controllers (`tests/cluster/kraft/controllers.py`) write, elect, take back, snapshot, die and come back at drawn
moments; the observer is the broker's own, with its files, and is killed or loses its power.  Judged are

- every image that it has: what it holds is what is committed up to its offset, neither more nor less, nor in part;
- every question that it asks: the epoch never goes back, not over a loss of power either, and what it says to have is
  there from then on, but for a loss of power: then its newest snapshot is, as with Kafka's brokers.

In the end all is well again, and the observer has all.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.metadata.image import ConfigResource
from kbroker.schemas import wire
from tests.cluster.kraft.controllers import VOTERS, Controllers, endpoint_of
from tests.cluster.kraft.observing import ModelTransport, Observing
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.sockets import Network
from tests.simulation.surroundings import surroundings

if TYPE_CHECKING:
    from kbroker.protocol.messages import Message

MEMORY = Path("/dev/shm")
BROKERS = ConfigResource(4, "")
SETTINGS = MetadataLogSettings(segment_bytes=700, retention_bytes=3000, retention_ms=-1, snapshot_bytes=900)
STEPS = 120
EVENTS = {
    "write": 40,
    "transact": 8,
    "follow": 40,
    "elect": 5,
    "lose": 2,
    "stop": 4,
    "snapshot": 9,
    "heal": 6,
    "die": 5,
}
"""What happens, and how often."""


class QuorumHistory:
    """One history; `counts` says what has happened."""

    def __init__(self, loop: SimulatedLoop, folder: Path) -> None:
        self._loop = loop
        self._folder = folder
        self._rng = random.Random(loop.rng.getrandbits(64))
        self._controllers = Controllers()
        self._names: dict[int, frozenset[str]] = {}
        self._life = 0
        self._process = Process("observer")
        self._epoch = 0
        self._claimed = 0
        self._losses = 0.0
        self._following: Observing | None = None
        self.counts = dict.fromkeys(("kills", "cuts", "images", "snapshots", "taken back"), 0)

    async def run(self) -> None:
        """All of it."""
        (self._folder / "0").mkdir()
        self._start()
        for _ in range(STEPS):
            self._happen()
            await asyncio.sleep(self._rng.choice((0.001, 0.005, 0.02, 0.1)))
        await self._settle()

    # -- the observer -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._process = Process(f"observer-{self._life}")
        self._process.call(self._begin, self._folder / str(self._life))

    def _begin(self, folder: Path) -> None:
        transport = ModelTransport(self._controllers)
        transport.max_bytes = self._rng.choice((100, 300, 1 << 20))
        transport.change = self._answered
        transport.heard = self._asked
        addresses = [endpoint_of(each) for each in VOTERS]
        following = self._following = Observing(folder, addresses, transport=transport, log=SETTINGS)
        following.metadata.subscribe(lambda: self._judge(following))
        following.observer.start()

    def _die(self) -> None:
        """Kill the observer, or cut its power, and start it on what its disk has."""
        is_cut = self._rng.random() < 0.6
        self._process.alive = False
        self.counts["cuts" if is_cut else "kills"] += 1
        if is_cut:
            self._claimed = self._kept_end()
        before = self._folder / str(self._life)
        self._life += 1
        after = self._folder / str(self._life)
        (self._loop.disk.after_power_cut if is_cut else self._loop.disk.after_kill)(before, after, self._rng)
        self._start()

    def _kept_end(self) -> int:
        """Where the newest snapshot ends that is durable."""
        assert self._following is not None
        newest = self._following.directory.newest_snapshot
        return 0 if newest is None else newest.end_offset

    def _asked(self, request: Message) -> None:
        if not isinstance(request, wire.FetchRequest):
            return
        row = request.topics[0].partitions[0]
        assert row.current_leader_epoch >= self._epoch, "it stepped back to an older epoch"
        assert row.last_fetched_epoch <= row.current_leader_epoch
        assert row.fetch_offset >= self._claimed, "it has lost what it said to have"
        self._epoch, self._claimed = row.current_leader_epoch, row.fetch_offset

    def _answered(self, _node: int, answer: Message) -> Message:
        if isinstance(answer, wire.FetchResponse):
            row = answer.responses[0].partitions[0]
            if row.diverging_epoch.end_offset >= 0:
                self.counts["taken back"] += 1
                self._claimed = 0
            if row.snapshot_id.end_offset >= 0:
                self.counts["snapshots"] += 1
                self._claimed = 0
        return answer

    def _judge(self, following: Observing) -> None:
        """An image is right."""
        self.counts["images"] += 1
        end = following.metadata.applied_offset + 1
        assert end <= self._controllers.committed_end, "what is not committed was applied"
        held = frozenset(following.metadata.image.configs.get(BROKERS, {}))
        assert held == self._committed(end), "an image holds something else than what is committed up to its offset"

    def _committed(self, end: int) -> frozenset[str]:
        if end not in self._names:
            batches = self._controllers.committed_batches(end)
            self._names[end] = frozenset(self._controllers.names_in(batches))
        return self._names[end]

    # -- what happens -------------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        controllers, rng = self._controllers, self._rng
        node_id = rng.choice(VOTERS)
        leader = controllers.leader()
        match rng.choices(tuple(EVENTS), tuple(EVENTS.values()))[0]:
            case "write":
                writes = node_id if leader is None or rng.random() < 0.2 else leader.node_id
                controllers.append(writes, rng.randint(1, 4))
            case "transact":
                controllers.transact(node_id if leader is None else leader.node_id)
            case "follow":
                for each in rng.sample(VOTERS, rng.randint(1, 3)):
                    controllers.replicate(each, rng.randint(1, 3))
            case "elect":
                controllers.elect(node_id)
            case "lose":
                controllers.lose_leader(node_id)
            case "stop":
                node = controllers.nodes[node_id]
                node.is_up = not node.is_up
                if node.leader_id == node_id:
                    node.leader_id = -1
            case "snapshot":
                controllers.take_snapshot(node_id, keeps=rng.randint(0, 1))
            case "heal":
                controllers.heal()
            case "die":
                self._die()

    async def _settle(self) -> None:
        controllers, following = self._controllers, self._following
        controllers.heal()
        leader = controllers.leader()
        assert leader is not None and following is not None
        async with asyncio.timeout(30):
            while following.metadata.applied_offset + 1 < leader.high_watermark:
                assert not following.failures, following.failures
                await asyncio.sleep(0.05)
        self._judge(following)


def play(seed: int) -> dict[str, int]:
    """The history of a seed; what has happened in it."""
    folder = Path(tempfile.mkdtemp(prefix="kbroker-quorum-", dir=MEMORY if MEMORY.is_dir() else None))
    loop = SimulatedLoop(seed)
    Network(loop)
    try:
        with surroundings(loop):
            asyncio.set_event_loop(loop)
            try:
                history = QuorumHistory(loop, folder)
                loop.run_until_complete(history.run())
                if loop.first_error is not None:
                    raise loop.first_error
            finally:
                asyncio.set_event_loop(None)
                loop.close()
                # An observer that died before its first step is told of here, not in another test.
                gc.collect()
    finally:
        shutil.rmtree(folder)
    return history.counts
