"""What a cluster bears whose logs have no leader epochs: one fault, and the next one when all of an ISR have what is
committed (KIP-101)."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.replication.partition import Role
from tests.simulation.cluster import Cluster
from tests.simulation.judge import Judge
from tests.simulation.loop import SimulatedLoop
from tests.simulation.runner import play_seed
from tests.simulation.several import START_SECONDS, InForce
from tests.simulation.sockets import Network
from tests.simulation.topics import Topic
from tests.simulation.world import SETTLE_SECONDS

OLD, NEW = Topic("t", b"", 1, is_old=True), Topic("t", b"", 1)


# Processes end where they are.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


class Wires(Network):
    """Those of brokers that do not reach each other at first."""

    healed_at: float | None = None

    def heal(self) -> None:
        self.healed_at = self.loop.time()


class Separated(Cluster):
    """One whose follower gets what it lacks `late` seconds after it reaches its leader; None: never."""

    def __init__(self, loop: SimulatedLoop, topic: Topic, late: float | None) -> None:
        self.loop = loop
        self.judge = Judge(loop.time)
        self.topics = {topic.name: topic}
        self.network = self.wires = Wires(loop)
        self._late = late

    def is_settled(self, topic: str) -> bool:
        healed_at = self.wires.healed_at
        return healed_at is not None and self._late is not None and self.loop.time() >= healed_at + self._late


def settled(topic: Topic, late: float | None) -> tuple[bool, bool, float]:
    """Whether another fault may come, whether the network was healed for that, and after how many seconds."""
    loop = SimulatedLoop(1)
    with contextlib.closing(loop):
        world, began = Separated(loop, topic, late), loop.time()
        asyncio.set_event_loop(loop)
        try:
            may = loop.run_until_complete(world.settle())
        finally:
            asyncio.set_event_loop(None)
        return may, world.wires.healed_at is not None, loop.time() - began


def test_a_second_fault_waits_until_the_isr_has_what_is_committed() -> None:
    """A follower that had cut its log, and did not reach its leader, led when that was gone: what was committed was
    lost, as Apache Kafka would lose it."""
    may, healed, seconds = settled(OLD, 3.0)
    assert may and healed
    assert seconds == pytest.approx(SETTLE_SECONDS + 3.0, abs=0.2)


def test_where_the_isr_never_has_it_no_other_fault_comes() -> None:
    """The history would have no end, or blame brokers for what none of them has any more."""
    may, _, seconds = settled(OLD, None)
    assert not may
    assert seconds == pytest.approx(SETTLE_SECONDS + START_SECONDS, abs=0.2)


def test_logs_with_epochs_wait_for_nothing() -> None:
    """Faults that come one upon another would be seen no more where Kafka bears them."""
    may, healed, _ = settled(NEW, None)
    assert may and not healed


def follower(end: int, *, epoch: int = 1, agrees: int = 1) -> Any:
    log = SimpleNamespace(log_end_offset=end, high_watermark=0, latest_epoch=-1)
    return SimpleNamespace(role=Role.FOLLOWER, log=log, leader_epoch=epoch, agrees_in_epoch=agrees)


@pytest.mark.parametrize(
    ("replica", "is_there", "expected"),
    [
        (follower(3), True, True),
        (follower(2), True, False),
        (follower(3), False, False),
        (follower(3, epoch=0), True, False),
        (follower(3, agrees=0), True, False),
        (None, True, False),
    ],
)
def test_a_cluster_is_settled_when_each_of_an_isr_has_all_in_its_epoch(
    replica: Any, is_there: bool, expected: bool
) -> None:
    """A replica that has yet to begin its epoch cuts what is committed, however much it has now."""
    log = SimpleNamespace(log_end_offset=4, high_watermark=3, latest_epoch=-1)
    leader = SimpleNamespace(role=Role.LEADER, log=log, leader_epoch=1, epoch_start=0)
    hosted = {1: leader, 2: replica}
    world: Any = SimpleNamespace(
        ensemble=SimpleNamespace(nodes={"/brokers/topics/t/partitions": SimpleNamespace(children={"0"})}),
        in_force=lambda *_: InForce(1, 1, [1, 2]),
        is_there=lambda node: node == 1 or is_there,
        judge=Judge(lambda: 9.0),
        states=SimpleNamespace(committed=lambda _: 0),
        _replica=lambda node, *_: hosted[node],
    )
    assert Cluster.is_settled(world, "t") is expected


def test_a_power_cut_waits_for_a_follower_that_does_not_reach_its_leader() -> None:
    """Two faults upon each other took three committed records: a consumer's offset was out of range."""
    play_seed(449)
