"""The judge of what brokers hold: what of the high watermarks of others it has to see, and what it may not invent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.replication.partition import Role
from kbroker.types import TopicPartition
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.several import InForce
from tests.simulation.states import States


class Replica(SimpleNamespace):
    """Of one partition."""

    def __init__(self, node_id: int, leads: bool = False) -> None:
        state = SimpleNamespace(producers={})
        epochs = SimpleNamespace(_epochs=[], _starts=[])
        super().__init__(
            node_id=node_id,
            topic="t",
            index=0,
            followers={},
            topic_partition=TopicPartition("t", 0),
            log=SimpleNamespace(log_start_offset=0, producer_state=state, leader_epoch_cache=epochs, parent="d"),
        )
        self.becomes(Role.LEADER if leads else Role.FOLLOWER, 1)
        self.has(0)

    def becomes(self, role: Role, epoch: int) -> None:
        self.role, self.leader_epoch = role, epoch

    def has(self, committed: int) -> None:
        """So much is there, and committed for all that the broker knows."""
        log = self.log
        log.last_stable_offset = log.high_watermark = log.log_end_offset = committed


class Manager(list[Replica]):
    """Of replicas; the judge asks each of them whether it leads."""

    def __init__(self, replicas: list[Replica]) -> None:
        super().__init__(replicas)
        self.followed: dict[TopicPartition, Replica] = {}

    def hosted(self, name: TopicPartition) -> Replica | None:
        return next((each for each in self if each.topic_partition == name), None)


class Cluster(SimpleNamespace):
    """Three brokers, of which the last leads at first; they were looked at once."""

    def __init__(self) -> None:
        self.replicas = [Replica(1), Replica(2), Replica(3, leads=True)]
        super().__init__(
            brokers={node: self._broker(each) for node, each in enumerate(self.replicas, 1)},
            crashes={},
            disks=SimpleNamespace(take_part=False),
            judge=Judge(lambda: 9.0),
            topics={"t": None},
            lasting_topics=set(),
            names_epochs=True,
            in_force=lambda *_: InForce(0, 0, []),
        )
        self.states = States(self)  # type: ignore[arg-type]
        self.states.look()

    @staticmethod
    def _broker(replica: Replica) -> Any:
        return SimpleNamespace(services=SimpleNamespace(replica_manager=Manager([replica])))

    def steps_down(self, committed: int, told: int) -> None:
        """The leader commits more, says so to the first broker, and learns that the second leads in the next epoch."""
        self.replicas[2].has(committed)
        self.replicas[0].has(told)
        self.replicas[2].becomes(Role.FOLLOWER, 2)


def test_what_a_leader_told_before_it_stepped_down_is_committed() -> None:
    """A follower that was told of a commit in a leader's last moments would be called a liar."""
    world = Cluster()
    world.steps_down(5, told=5)
    world.states.look()
    assert world.states.committed(world.replicas[0]) == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("goes", ["broker", "replica"])
def test_what_a_leader_told_before_it_went_is_committed(goes: str) -> None:
    """A leader that crashes, or whose replica moves away, takes nothing back of what it has told."""
    world = Cluster()
    world.steps_down(5, told=5)
    if goes == "broker":
        del world.brokers[3]
    else:
        world.brokers[3].services.replica_manager.clear()
    world.states.look()
    assert world.states.committed(world.replicas[0]) == 5  # type: ignore[arg-type]


def test_what_a_leader_commits_while_its_broker_stops_is_committed() -> None:
    """A broker that stops in order serves on for a while: who was told of its last commits would be called a liar."""
    world = Cluster()
    del world.brokers[3]
    world.states.look()
    world.replicas[2].has(7)
    world.replicas[0].has(7)
    world.states.look()
    assert world.states.committed(world.replicas[0]) == 7  # type: ignore[arg-type]
    world.replicas[0].has(8)
    with pytest.raises(ViolationError, match="8 is committed, and no leader had that"):
        world.states.look()


def test_a_follower_that_goes_beyond_what_its_leader_had_is_seen() -> None:
    """A follower could take for committed what no leader has, as long as leaders change."""
    world = Cluster()
    world.steps_down(5, told=6)
    with pytest.raises(ViolationError, match="6 is committed, and no leader had that"):
        world.states.look()


def test_a_new_epoch_alone_makes_nothing_committed() -> None:
    """One that follows in one epoch and in the next has led in neither: its word would pass for a leader's."""
    world = Cluster()
    world.replicas[1].has(4)
    world.replicas[1].becomes(Role.FOLLOWER, 2)
    with pytest.raises(ViolationError, match="4 is committed, and no leader had that"):
        world.states.look()
    between = Cluster()
    between.replicas[1].has(4)
    between.replicas[1].becomes(Role.FOLLOWER, 3)
    between.states.look()
    assert between.states.committed(between.replicas[0]) == 4  # type: ignore[arg-type]


def test_what_a_leader_believes_of_a_follower_is_there() -> None:
    """A leader would commit what a follower does not have; one that has crashed has yet to say what it has lost."""
    cluster = Cluster()
    leader, follower = cluster.replicas[2], cluster.replicas[0]
    leader.has(9)
    follower.has(5)
    leader.followers[1] = SimpleNamespace(log_end_offset=5, log_start_offset=0)
    cluster.states.look()
    follower.has(4)
    follower.becomes(Role.FOLLOWER, 2)
    cluster.states.look()  # In another epoch it may have been cut.
    cluster.crashes[1] = 1
    follower.becomes(Role.FOLLOWER, 1)
    cluster.states.look()
    leader.followers[1].log_end_offset = 6
    with pytest.raises(ViolationError, match="broker 1 is taken to have 0 to 6, and has 0 to 4"):
        cluster.states.look()
