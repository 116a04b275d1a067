"""Where the replicas of a broker that is drained go, and why a replica is not in sync.

Also of `kbroker.cli.checks.cluster_checks`, `kbroker.cli.metrics_listener`, `kbroker.cli.refusals`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cli.cluster.cluster import Held, drained, reason
from kbroker.schemas import wire

BROKERS = (1, 2, 3, 4, 5)
ASSIGNMENTS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9)),
    st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True),
    max_size=12,
)


@given(ASSIGNMENTS, st.sampled_from(BROKERS), st.dictionaries(st.sampled_from(BROKERS), st.sampled_from("xyz")))
def test_a_drained_broker_has_nothing_and_others_share_it(
    assignment: dict[tuple[str, int], list[int]], broker: int, racks: dict[int, str | None]
) -> None:
    """A broker that is switched off would take replicas with it, or one of the others get them all."""
    others = [each for each in BROKERS if each != broker]
    target = drained(assignment, broker, others, racks)
    assert set(target) == {name for name, replicas in assignment.items() if broker in replicas}
    for name, replicas in target.items():
        old = assignment[name]
        assert broker not in replicas
        assert len(set(replicas)) == len(replicas) == len(old)
        assert [each for each in old if each != broker] == [each for each in replicas if each in old]


def test_replicas_stay_apart_in_racks_and_go_where_there_are_few() -> None:
    """The replicas of a partition would come to lie in one rack, and fail together."""
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b"}
    assert drained({("t", 0): [1, 2]}, 1, [2, 3, 4], racks) == {("t", 0): [3, 2]}
    several = {("t", index): [1] for index in range(3)}
    assert sorted(drained(several, 1, [2, 3, 4], {}).values()) == [[2], [3], [4]]
    assert drained({("t", 0): [1, 2]}, 1, [2], {}) == {("t", 0): [2]}


@pytest.mark.parametrize(
    ("row", "replica", "is_new", "words"),
    [
        ({"leader_id": 1}, Held(0, 5, 1 << 40), False, "it is behind its leader"),
        ({"leader_id": 1}, Held(0, 5, -1), True, "a reassignment adds it"),
        (
            {"leader_id": 1},
            Held(0, 5, 256 << 10),
            False,
            "it is behind its leader, and its log directory has 256.0 KiB left",
        ),
        ({"leader_id": 1, "offline_replicas": [2]}, None, False, "its log directory has failed"),
        ({"leader_id": 3}, None, False, "there is no leader to copy from"),
    ],
)
def test_a_replica_out_of_sync_has_a_reason(
    row: dict[str, object], replica: Held | None, is_new: bool, words: str
) -> None:
    """Somebody would look for a slow network where a disk is full."""
    partition = wire.MetadataResponse.MetadataResponsePartition(**row)
    assert reason(2, partition, [1, 2], replica, is_new=is_new) == words
    assert reason(2, partition, [1], replica, is_new=is_new) == "its broker is not registered"
