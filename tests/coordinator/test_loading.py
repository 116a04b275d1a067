"""Restarts: what was there before is there again, and what is asked for meanwhile gets the right answer.

Also of `kbroker.coordinator.classic.group_registry`.
"""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
from kbroker.coordinator.classic.messages import PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.runtime import shard as shard_module
from kbroker.coordinator.runtime.plan import TransactionalProducer
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    KafkaStorageError,
    NotCoordinatorError,
)
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage
from kbroker.schemas import message
from tests.coordinator.harness import MemoryLog, World, delete_topic, join_request, protocols
from tests.coordinator.snapshots import snapshot
from tests.coordinator.wire import Client


def busy_world() -> World:
    world = World()
    for number in range(20):
        world.commit(f"simple-{number}", number)
        world.commit(f"simple-{number}", number + 1)
    for number in range(10):
        joined = world.stable_member(f"group-{number}", group_instance_id=f"i{number}" if number % 2 else None)
        world.commit(f"group-{number}", 5, generation_id=1, member_id=joined.member_id)
    world.leave("group-4", *world.group("group-4").members)
    world.coordinator.delete_group("simple-3")
    world.stable_member("connect", protocol_type="connect", protocols=protocols("a"))
    return world


def test_a_broker_that_no_controller_has_told_anything_does_not_say_that_nothing_is_committed() -> None:
    """Consumers that ask a coordinator which has just come back would begin anew: behind what they have not read, or at
    the start of everything."""
    cache = MetadataCache(ClusterImage.of("cluster"))
    world = World(with_topic=False)
    coordinator = GroupCoordinator(world.config, world.loop, world.loop, MemoryLog(cache), cache, world.slices)
    coordinator.start()
    with pytest.raises(CoordinatorNotAvailableError):
        coordinator.offsets_of("g")
    with pytest.raises(CoordinatorNotAvailableError):
        coordinator.registry.check_complete()
    assert world.coordinator.offsets_of("g") is None, "where there is no topic nothing is committed"


def test_a_broker_whose_metadata_may_be_older_than_the_topic_does_not_say_that_nothing_is_committed() -> None:
    """A consumer whose group has a new coordinator, which has not heard of the topic yet, would begin anew: a history
    lost a committed offset so (seed 3100196)."""
    cache = MetadataCache(ClusterImage.of("cluster", controller_id=2))
    world = World(with_topic=False)
    coordinator = GroupCoordinator(world.config, world.loop, world.loop, MemoryLog(cache), cache, world.slices)
    coordinator.start()
    with pytest.raises(NotCoordinatorError):
        coordinator.offsets_of("g")
    coordinator.registry.check_complete()


def test_a_coordinator_that_has_stopped_does_not_say_that_nothing_is_committed() -> None:
    """The requests of the last moment would be answered as if the groups were new."""
    world = World()
    world.commit("g", 7)
    world.coordinator.stop()
    with pytest.raises(CoordinatorNotAvailableError):
        world.coordinator.registry.find("g")


def test_a_restart_changes_nothing() -> None:
    """Consumers would lose their place or their partitions with every restart of the broker."""
    world = busy_world()
    before = snapshot(world)
    assert len(before) == 30
    assert snapshot(world.restarted()) == before


def test_compressed_state_is_read_back() -> None:
    """A directory whose offsets.topic.compression.codec was set would be unreadable."""
    world = World({"offsets.topic.compression.codec": 1})
    world.commit("g", 7)
    assert [batch[22] & 7 for partition in world.log.partitions for _, batch in partition] == [1]
    assert world.restarted().committed("g") == 7


def test_members_go_on_after_a_restart_and_their_sessions_start_anew() -> None:
    """Every group would rebalance after every restart."""
    world = World()
    joined = world.stable_member()
    world.loop.advance(9)
    again = world.restarted()
    again.loop.advance(9)
    assert again.heartbeat("g", joined.member_id, 1) is ErrorCode.NONE
    again.loop.advance(9)
    assert again.state() == "Stable"
    again.loop.advance(2)
    assert again.state() == "Empty"


def test_a_generation_that_was_not_stored_is_gone() -> None:
    """Half of a rebalance would be taken for a finished one."""
    world = World()
    joined = world.stable_member()
    world.join()
    again = world.restarted()
    assert list(again.group().members) == [joined.member_id]
    assert again.state() == "Stable"


def slow_world(log: MemoryLog) -> World:
    """A world whose loop gets its turn at every chance while partitions load."""
    return World(log=log, slice_us=0)


def test_while_a_partition_loads_clients_are_told_to_wait() -> None:
    """A consumer would take a group that is still loading for a new one, and start anew."""
    world = busy_world()
    joined = world.group("group-1").leader_id or ""
    loading = slow_world(world.log)
    coordinator = loading.coordinator
    with pytest.raises(CoordinatorLoadInProgressError):
        coordinator.list_groups((), ())
    for call in (
        lambda: coordinator.describe("group-1"),
        lambda: coordinator.offsets_of("group-1"),
        lambda: coordinator.delete_group("group-1"),
        lambda: coordinator.leave("group-1", []),
        lambda: coordinator.commit_offsets(Committer("group-1"), [PartitionCommit("t1", 0, 1)], 9),
    ):
        with pytest.raises(CoordinatorLoadInProgressError):
            call()
    answers: list[Any] = []
    coordinator.join(join_request("group-1"), answers.append)
    assert answers[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert loading.sync("group-1", joined, 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert loading.heartbeat("group-1", joined, 1, "i1") is ErrorCode.NONE
    loading.loop.advance(1)
    assert snapshot(loading) == snapshot(world)
    assert loading.heartbeat("group-1", joined, 1, "i1") is ErrorCode.NONE
    assert loading.loop.scheduled > 4 + len(world.log.partitions)


def test_a_topic_that_is_deleted_while_offsets_load_takes_them_along() -> None:
    """A topic made anew would be read from the middle, as the coordinator was looking elsewhere when it was deleted."""
    world = World()
    for number in range(20):
        world.commit("g", number)
        world.commit("g", number, topic="t2")
    staged = [PartitionCommit("t1", 1, 9)]
    producer = TransactionalProducer(7, 0)
    world.coordinator.commit_transactional_offsets(Committer("g"), staged, producer, 3)
    loading = slow_world(world.log)
    assert "g" not in loading.coordinator.registry.groups
    delete_topic(loading.cache, "t1")
    loading.loop.advance(1)
    assert (loading.committed("g"), loading.committed("g", "t2")) == (None, 19)
    assert not loading.group().offsets.pending
    assert World(log=world.log).committed("g") is None


def test_loading_reads_chunks_of_the_configured_size() -> None:
    """A large state topic would be read into memory at once."""
    world = busy_world()
    world.log.read_sizes.clear()
    before = snapshot(world)
    again = world.restarted({"offsets.load.buffer.size": 500})
    assert snapshot(again) == before
    assert len(world.log.read_sizes) > 10
    assert max(world.log.read_sizes) <= 600


def test_a_partition_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failed read would leave a fiftieth of all groups without a coordinator until the next restart."""
    world = World()
    world.commit("g", 1)
    broken = [True]
    read = MemoryLog.read

    def failing_read(self: MemoryLog, partition_index: int, offset: int, max_bytes: int) -> bytes:
        if broken[0]:
            raise KafkaStorageError("no")
        return read(self, partition_index, offset, max_bytes)

    monkeypatch.setattr(MemoryLog, "read", failing_read)
    again = world.restarted()
    with pytest.raises(KafkaError) as failure:
        again.coordinator.offsets_of("g")
    assert failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broken[0] = False
    again.loop.advance(31)
    assert again.committed("g") == 1


def test_a_damaged_batch_does_not_stop_the_others() -> None:
    """A damaged partition would take the whole coordinator down."""
    world = World()
    for group_id in ("a", "b", "c", "d"):
        world.commit(group_id, 1)
    base, batch = world.log.partitions[world.group("a").partition_index][0]
    damaged = bytearray(batch)
    damaged[16] = 9
    world.log.partitions[world.group("a").partition_index][0] = (base, bytes(damaged))
    again = world.restarted()
    with pytest.raises(KafkaError):
        again.coordinator.offsets_of("a")
    assert again.committed("b") == 1


def test_stopping_ends_timers_and_loading() -> None:
    """A stopped coordinator would go on writing to logs that are closed."""
    world = busy_world()
    loading = slow_world(world.log)
    loading.coordinator.stop()
    world.coordinator.stop()
    appended = sum(len(partition) for partition in world.log.partitions)
    loading.loop.advance(100_000)
    world.loop.advance(100_000)
    assert sum(len(partition) for partition in world.log.partitions) == appended


def test_the_state_topic_is_made_for_the_first_group() -> None:
    """The first consumer of a new broker would have no coordinator."""
    world = World(with_topic=False)
    assert world.cache.topic("__consumer_offsets") is None
    assert list(world.coordinator.list_groups((), ())) == []
    assert world.join().answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # The handlers make it.
    commit = message("OffsetCommitRequest")
    assert Client(world).call("OffsetCommit", 7, group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t1")])
    assert world.cache.topic("__consumer_offsets") is None
    partitions = [commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topics = [commit.OffsetCommitRequestTopic(name="t1", partitions=partitions)]
    Client(world).call("OffsetCommit", 7, group_id="g", topics=topics)
    topic = world.cache.topic("__consumer_offsets")
    assert topic is not None and len(topic.partitions) == 4


def test_deleting_many_offsets_takes_batches_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with very many offsets could not be deleted: its tombstones would not fit one batch."""
    monkeypatch.setattr(shard_module, "MAX_BATCH_BYTES", 2_000)
    world = World()
    commits = [PartitionCommit("t1", index, index) for index in range(500)]
    world.coordinator.commit_offsets(Committer("g"), commits, 9)
    world.coordinator.delete_group("g")
    largest = max(len(batch) for partition in world.log.partitions for _, batch in partition)
    assert largest < 2_200
    assert world.restarted().committed("g", partition=499) is None


def test_a_group_of_two_partitions_is_loaded() -> None:
    """Where `__consumer_offsets` was given more partitions, a start would fail, or groups have no offsets."""
    names = [f"g{number}" for number in range(12)]
    world = World()
    for number, name in enumerate(names):
        world.commit(name, number + 1)
    world.coordinator.stop()
    old = len(world.log.partitions)
    world.log.partitions += [[], [], []]
    world.log.followed = set(range(old))
    more = World(log=world.log)
    moved = [name for name in names if more.coordinator.registry.runtime.partition_of(name) >= old]
    for name in moved:
        more.commit(name, 100)
    assert moved
    world.log.followed = set()
    again = more.restarted()
    for number, name in enumerate(names):
        assert again.committed(name) in (number + 1, 100)
