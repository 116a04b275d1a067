"""ACLs that change while clients are connected: what they may do from then on, also in a fetch that waits.

Two clients, told apart by their addresses: the first does what it likes, the second what rules allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.waiting import wait_for
from tests.gate.refused_world import OTHER_ADDRESS
from tests.gate.rules_world import REFUSED, WAIT_MS, World, fetch, produced
from tests.scenarios.wire import Wire


@pytest.fixture(scope="module", name="world")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("rules"))
    yield world
    world.close()


def test_what_a_rule_gives_and_takes_counts_for_the_next_request(world: World) -> None:
    """A client whose right is gone would go on for as long as it stays connected."""
    for _ in range(3):
        assert produced(world.second) == REFUSED
        world.let(4)
        assert [produced(world.second) for _ in range(3)] == [0, 0, 0]
        world.withdraw()
    assert produced(world.second) == REFUSED
    assert produced(world.first.wire) == 0


@pytest.mark.parametrize(
    ("version", "values"),
    [
        (4, {}),
        (12, {"session_epoch": -1}),
        (12, {"session_epoch": 0}),
        (16, {"session_epoch": 0}),
        (16, {"session_epoch": -1}),
        # Not plain: its handler reads it.
        (12, {"session_epoch": -1, "forgotten_topics_data": [{"topic": "x", "partitions": [0]}]}),
    ],
)
def test_a_fetch_that_waits_gives_nothing_when_its_right_is_gone(
    world: World, version: int, values: dict[str, Any]
) -> None:
    """Records that were written after a right was taken away would reach its client."""
    world.let(3)
    try:
        world.second.send("Fetch", version, fetch(world, version, WAIT_MS, **values))
        # The broker has begun with the fetch when it answers another request of its turn.
        other = Wire(world.broker.port, source=OTHER_ADDRESS)
        other.ask("ApiVersions", 3, {})
        other.close()
        world.withdraw()
        assert produced(world.first.wire) == 0
        (partition,) = world.second.answer("Fetch", version).responses[0].partitions
        assert (partition.error_code, bytes(partition.records or b"")) == (REFUSED, b"")
    finally:
        world.withdraw()


def test_a_session_that_waits_gives_nothing_when_its_right_is_gone(world: World) -> None:
    """The same of a consumer's later fetches, which name no topics."""
    world.let(3)
    try:
        begun = world.second.ask("Fetch", 16, fetch(world, 16, 0, session_epoch=0))
        assert begun.session_id
        again = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 100_000, "topics": []}
        world.second.send("Fetch", 16, {**again, "session_id": begun.session_id, "session_epoch": 1})
        other = Wire(world.broker.port, source=OTHER_ADDRESS)
        other.ask("ApiVersions", 3, {})
        other.close()
        world.withdraw()
        assert produced(world.first.wire) == 0
        (partition,) = world.second.answer("Fetch", 16).responses[0].partitions
        assert (partition.error_code, bytes(partition.records or b"")) == (REFUSED, b"")
        world.let(3)
        read = world.second.ask("Fetch", 16, {**again, "session_id": begun.session_id, "session_epoch": 2})
        assert read.responses[0].partitions[0].error_code == 0
        assert bytes(read.responses[0].partitions[0].records)
    finally:
        world.withdraw()


def test_a_share_fetch_that_waits_acquires_nothing_when_its_right_is_gone(world: World) -> None:
    """Records that were written after a right was taken away would reach its client, and be locked for the others."""
    world.let(3)
    world.allow(principal="User:ANONYMOUS", host=OTHER_ADDRESS, resource_type=3, resource_name="g")
    asked = {
        "group_id": "g",
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "max_wait_ms": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "max_records": 10,
        "batch_size": 10,
    }
    topics = [{"topic_id": world.topic_id, "partitions": [{"partition_index": 0}]}]
    member = {"member_id": "BBBBBBBBBBBBBBBBBBBBBA", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    try:
        # The group begins at the end of the log, once its state is there.
        first = {**asked, "max_wait_ms": 500, "share_session_epoch": 0, "topics": topics}

        def begun() -> bool:
            # Has the topic of such states made.
            world.first.quietly("ShareGroupHeartbeat", 1, group_id="g", **member)
            (partition,) = world.second.ask("ShareFetch", 1, first).responses[0].partitions
            return int(partition.error_code) == 0

        wait_for(begun, "the group's state")
        world.second.send("ShareFetch", 1, {**asked, "share_session_epoch": 1, "topics": []})
        other = Wire(world.broker.port, source=OTHER_ADDRESS)
        other.ask("ApiVersions", 3, {})
        other.close()
        world.withdraw()
        assert produced(world.first.wire) == 0
        (partition,) = world.second.answer("ShareFetch", 1).responses[0].partitions
        assert (partition.error_code, partition.acquired_records) == (REFUSED, [])
    finally:
        world.withdraw()
