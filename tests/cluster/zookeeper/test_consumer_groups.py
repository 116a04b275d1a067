"""Offsets of old clients in ZooKeeper: through OffsetCommit and OffsetFetch of version 0, and as commands move them.

Also of `kbroker.handlers.groups.zookeeper_offsets`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cli.groups import zookeeper_groups
from kbroker.cli.main import run
from kbroker.cluster.zookeeper.consumer_groups import ConsumerGroupZnodes
from kbroker.cluster.zookeeper.consumer_znodes import ConsumerZnode, encode_consumer
from kbroker.cluster.zookeeper.session import set_or_create
from kbroker.errors import ErrorCode
from kbroker.schemas import message
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.coordinator.harness import World, create_topics, topic_image
from tests.coordinator.wire import HANDLERS, Client, Context

COMMIT, FETCH = message("OffsetCommitRequest"), message("OffsetFetchRequest")


def handled(kept: ConsumerGroupZnodes, request: Any, world: World) -> Any:
    """The answer to a request of version 0."""

    async def main() -> Any:
        services = Client(world)._services
        services.zookeeper_offsets = kept
        services.slices = Slices(asyncio.get_running_loop())
        answer: Any = await HANDLERS[request.api_key].handle(Context(0, services), request)  # type: ignore[arg-type, misc]
        return answer

    return asyncio.run(main())


def commit(group: str, offsets: Mapping[int, int], topic: str = "old", metadata: str = "") -> Any:
    row, part = COMMIT.OffsetCommitRequestTopic, COMMIT.OffsetCommitRequestPartition
    partitions = [
        part(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in offsets.items()
    ]
    return COMMIT(group_id=group, topics=[row(name=topic, partitions=partitions)])


def fetch(group: str, indexes: list[int], topic: str = "old") -> Any:
    return FETCH(group_id=group, topics=[FETCH.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)])


def codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def offsets_of(answer: Any) -> list[tuple[int, int]]:
    return [(each.committed_offset, each.error_code) for topic in answer.topics for each in topic.partitions]


@pytest.fixture
def world() -> World:
    made = World()
    create_topics(made.cache, topic_image("old", bytes(16), 600))
    return made


def test_version_0_commits_to_zookeeper_and_reads_it(world: World) -> None:
    """A client that is moved between brokers of Kafka and kbroker would start from another place."""
    ensemble = FakeEnsemble()
    kept = ConsumerGroupZnodes(ensemble.session())
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(handled(kept, commit("g", {0: 7, 1: 2**40, 600: 1}), world)) == [0, 0, unknown]
    assert ensemble.content("/consumers/g/offsets/old/0") == b"7"
    assert codes(handled(kept, commit("g", {0: 9}), world)) == [0]
    assert codes(handled(kept, commit("g", {0: 9}, topic="gone"), world)) == [unknown]
    assert codes(handled(kept, commit("g", {0: 1}, metadata="x" * 5000), world)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    found = offsets_of(handled(kept, fetch("g", [0, 1, 2, 600]), world))
    assert found == [(9, 0), (2**40, 0), (-1, unknown), (-1, unknown)]
    assert world.coordinator.offsets_of("g") is None
    many = {index: index for index in range(600)}
    assert set(codes(handled(kept, commit("g", many), world))) == {0}
    assert offsets_of(handled(kept, fetch("g", list(many)), world)) == [(offset, 0) for offset in many.values()]


def test_version_0_is_refused_where_zookeeper_is_away_or_the_group_has_no_path(world: World) -> None:
    """A commit would be acknowledged and lost, or a group's name reach znodes that are not its own."""
    ensemble = FakeEnsemble()
    session = ensemble.session()
    kept = ConsumerGroupZnodes(session)
    for group in ("", "..", "g/owners", "a\0b"):
        assert codes(handled(kept, commit(group, {0: 1}), world)) == [ErrorCode.INVALID_GROUP_ID]
        assert offsets_of(handled(kept, fetch(group, [0]), world)) == [(-1, ErrorCode.INVALID_GROUP_ID)]
    assert ensemble.writes == []
    session.suspend()
    away = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(handled(kept, commit("g", {0: 1}), world)) == [away]
    assert offsets_of(handled(kept, fetch("g", [0]), world)) == [(-1, away)]


async def make_group(session: FakeSession, *, alive: bool) -> None:
    kept = ConsumerGroupZnodes(session)
    await kept.commit("g", {TopicPartition("t", each): 10 * each for each in range(4)})
    await set_or_create(session, "/consumers/g/offsets/t/4", b"nonsense")
    await set_or_create(session, "/consumers/g/offsets/t/x", b"1")
    if alive:
        member = ConsumerZnode({"t": 2}, "white_list", 1)
        await set_or_create(session, "/consumers/g/ids/g_host-1", encode_consumer(member))
        await set_or_create(session, "/consumers/g/owners/t/0", b"g_host-1-0")


def test_offsets_move_forward_only_and_not_under_running_consumers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group that is moved would read records again or never, or have its offsets in two places from then on."""
    ensemble = FakeEnsemble()
    session = ensemble.session()
    committed = {("t", 1): 5, ("t", 2): 20, ("t", 3): 31}
    stored: dict[tuple[str, int], int] = {}

    def ask(_self: object, call: Any) -> Any:
        return asyncio.run(call(ConsumerGroupZnodes(session)))

    monkeypatch.setattr(zookeeper_groups.Servers, "ask", ask)
    admin = Mock(do=lambda found: found, offsets_of=lambda places, _at, **_: dict.fromkeys(places, 50))
    monkeypatch.setattr(zookeeper_groups.Cluster, "admin", lambda _self: nullcontext(admin))
    monkeypatch.setattr(zookeeper_groups, "committed_offsets", lambda *_: committed)
    monkeypatch.setattr(zookeeper_groups, "commit", lambda _admin, _group, targets: stored.update(targets))

    def move(*options: str) -> tuple[int, str, str]:
        status = run(["groups", "move-offsets", "--zookeeper", "zk:2181", "g", "--json", *options])
        out, err = capsys.readouterr()
        return status, out, err

    assert move() == (1, "", "kbroker: g: there is no such group in ZooKeeper\n")
    asyncio.run(make_group(session, alive=True))
    status, out, err = move("--execute")
    assert (status, out, stored) == (1, "", {})
    assert "consumers of the group run" in err
    status, out, err = move()
    assert status == 1
    assert "/consumers/g/offsets/t/4 makes no sense" in err
    rows = json.loads(out)[0]["partitions"]
    assert [(row["new_offset"], row["stays"]) for row in rows] == [
        (0, None),
        (10, None),
        (20, "committed already"),
        (31, "more is committed"),
    ]
    assert stored == {}
    asyncio.run(session.delete("/consumers/g/ids/g_host-1"))
    asyncio.run(session.delete("/consumers/g/owners/t/0"))
    move("--execute")
    assert stored == {("t", 0): 0, ("t", 1): 10}
