"""What is seen inside brokers when they answer: what the witness has to see, and what it may not invent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.replication_witness import ClusterWitness, Term
from tests.simulation.topics import Topic

PARTITION = ("t", 0)


class Cluster(SimpleNamespace):
    """Brokers whose replicas end there, each of which takes itself for the leader in epoch 4; time by hand."""

    def __init__(self, *ends: int, min_in_sync: int = 0, knows: bool = True) -> None:
        nodes = range(1, len(ends) + 1)
        super().__init__(
            nodes=nodes,
            brokers={node: self._broker(end, knows) for node, end in zip(nodes, ends, strict=True)},
            starting={},
            crashes={},
            crashed_at={},
            judge=Judge(lambda: 9.0),
            loop=SimpleNamespace(time=lambda: 9.0),
            topics={"t": Topic("t", b"", 1, replicas=len(ends), min_in_sync=min_in_sync)},
            disks=SimpleNamespace(take_part=False),
            setting=lambda *_: "2",
            cuts_by_epochs=lambda _: True,
            may_lose_leaders=True,
            may_lag=False,
        )

    @staticmethod
    def _broker(end: int, knows: bool) -> Any:
        replica = SimpleNamespace(log=SimpleNamespace(log_end_offset=end), leader_epoch=4)
        manager = SimpleNamespace(hosted=lambda _: replica, topics={"t": {0: replica}})
        alive = dict.fromkeys((1, 2, 3), SimpleNamespace(is_fenced=False))
        cache = SimpleNamespace(topic=lambda name: name if knows else None, image=SimpleNamespace(brokers=alive))
        services = SimpleNamespace(replica_manager=manager, metadata_cache=cache)
        return SimpleNamespace(services=services, replicas=manager)


def test_what_is_acknowledged_by_all_is_held_by_enough() -> None:
    """acks=all could be answered while one broker alone has the record."""
    for enough in (Cluster(5, 5, 4), Cluster(5, 4, 4, min_in_sync=1)):
        ClusterWitness(enough)  # type: ignore[arg-type].is_held("p", PARTITION, 4, 8.0)
    crashed = Cluster(5, 4, 4)
    crashed.crashed_at = {2: 8.5}
    ClusterWitness(crashed).is_held("p", PARTITION, 4, 8.0)
    with pytest.raises(ViolationError, match="is acknowledged"):
        ClusterWitness(Cluster(5, 4, 4)).is_held("p", PARTITION, 4, 8.0)
    # One may be in the ISR while its start has not come to its end.
    starts = Cluster(5, 5, 4)
    starts.starting[2] = starts.brokers.pop(2)
    ClusterWitness(starts).is_held("p", PARTITION, 4, 8.0)


def test_a_leader_gives_offsets_that_go_up_in_its_epoch() -> None:
    """A leader could give an offset twice to acks=1, which no other rule looks at where leaders change."""
    world: Any = Cluster(5)
    witness = ClusterWitness(world)
    term = witness.term(1, PARTITION)
    assert term == Term(PARTITION, 1, 0, 4)
    witness.is_stored("p", PARTITION, term, witness.floor(term), 3, 2)
    assert witness.floor(term) == 5
    with pytest.raises(ViolationError, match="gives offset 4"):
        witness.is_stored("p", PARTITION, term, witness.floor(term), 4, 1)
    # Of what was sent to another process, or in another epoch, nothing is known.
    world.crashes[1] = 1
    witness.is_stored("p", PARTITION, term, 5, 4, 1)


def test_a_topic_that_a_broker_has_learnt_of_is_known_to_it() -> None:
    """Brokers could say at any time that a topic is not there, which clients take for its end."""
    world: Any = Cluster(5)
    witness = ClusterWitness(world)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert witness.excuses(code, PARTITION, 1, 9.5)
    witness.look()
    assert witness.excuses(code, PARTITION, 1, 8.0)
    assert not witness.excuses(code, PARTITION, 1, 9.5)
    world.crashes[1] = 1
    assert witness.excuses(code, PARTITION, 1, 9.5)
    unknown = ClusterWitness(Cluster(5, knows=False))  # type: ignore[arg-type]
    unknown.look()
    assert unknown.excuses(code, PARTITION, 1, 9.5)


def test_too_few_replicas_are_an_excuse_for_acks_all_alone() -> None:
    """A broker could refuse batches for nothing."""
    for code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        assert ClusterWitness(Cluster(5, 5)).excuses(code, PARTITION, 1, 9.5, -1)  # type: ignore[arg-type]
        assert not ClusterWitness(Cluster(5, 5)).excuses(code, PARTITION, 1, 9.5, 1)  # type: ignore[arg-type]
        one = ClusterWitness(Cluster(5, 5, min_in_sync=1))  # type: ignore[arg-type]
        assert not one.excuses(code, PARTITION, 1, 9.5, -1)


def test_what_is_deleted_is_gone_from_all_replicas_that_are_alive() -> None:
    """DeleteRecords could be answered while a follower has the records, and leads next."""

    def judged(cluster: Cluster, *starts: int) -> None:
        for node, start in enumerate(starts, 1):
            cluster.brokers[node].replicas.hosted(None).log.log_start_offset = start
        witness = ClusterWitness(cluster)  # type: ignore[arg-type]
        witness.look()
        witness.is_deleted("d", PARTITION, 5, 8.0)

    judged(Cluster(9, 9, 9), 5, 6, 5)
    with pytest.raises(ViolationError, match="is deleted below 5, and begins at 4 on broker 3"):
        judged(Cluster(9, 9, 9), 5, 5, 4)
    crashed = Cluster(9, 9, 9)
    crashed.crashed_at = {3: 2.0}
    judged(crashed, 5, 5, 4)
    gone = Cluster(9, 9, 9)
    for each in gone.brokers.values():
        each.services.metadata_cache.image.brokers[3] = None
    judged(gone, 5, 5, 4)
