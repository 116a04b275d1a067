"""A broker that stops, or fails to write, at any append: what the log says is the state, and nothing else."""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.errors import ErrorCode, NotEnoughReplicasError
from tests.coordinator.harness import T1_ID, T2_ID, MemoryLog, World
from tests.coordinator.streams.harness import facts
from tests.coordinator.streams.kafka_settings import SETTINGS
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import Client

IDS = {"t1": T1_ID, "t2": T2_ID}


def snapshot(world: World) -> dict[str, Any]:
    """What is known of every group: its kind, its records, its offsets."""
    return {
        group_id: (
            facts(group.kind) if isinstance(group.kind, StreamsGroup) else group.state,
            sorted((topic, partition, committed.offset) for topic, partition, committed in group.offsets),
        )
        for group_id, group in world.coordinator.registry.groups.items()
    }


def copied(log: MemoryLog) -> MemoryLog:
    copy = MemoryLog(None, len(log.partitions))
    copy.partitions = [list(batches) for batches in log.partitions]
    return copy


class Crashing:
    """A client after each of whose requests another broker is started over what the log holds then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Client(world)
        self.crashes = 0
        self._appended = 0

    def call(self, name: str, version: int, **fields: Any) -> Any:
        answer = self.client.call(name, version, **fields)
        appended = sum(map(len, self.world.log.partitions))
        assert appended <= self._appended + 1, "one request, one batch"
        if appended > self._appended:
            self._appended = appended
            self.crashes += 1
            other = World(SETTINGS, copied(self.world.log), self.world.loop.time)
            # Classic members are not what this is about, and come back in a rebalance.
            mine, theirs = snapshot(self.world), snapshot(other)
            assert {name: each for name, each in theirs.items() if name != "m"} == {
                name: each for name, each in mine.items() if name != "m"
            }
            other.coordinator.stop()
        return answer


def test_the_group_is_what_the_log_says_after_every_append() -> None:
    """After a crash, a broker would know another group than the one that its members were told of."""
    world = World(SETTINGS)
    caller = Crashing(world)
    StreamsScript(caller, IDS, lambda: world.loop.advance(1.0)).run()
    assert caller.crashes > 30


class Refusing:
    """A client whose every heartbeat is refused by the log once, before it is repeated."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Client(world)
        self.refusals = 0

    def call(self, name: str, version: int, **fields: Any) -> Any:
        if name == "StreamsGroupHeartbeat":
            before, timers = snapshot(self.world), len(self.world.coordinator.registry.runtime.shards[0].timers)
            self.world.log.failure = NotEnoughReplicasError()
            answer = self.client.call(name, version, **fields)
            self.world.log.failure = None
            if answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.refusals += 1
                assert snapshot(self.world) == before
                assert len(self.world.coordinator.registry.runtime.shards[0].timers) == timers
            else:
                return answer
        return self.client.call(name, version, **fields)


def test_a_heartbeat_that_cannot_be_written_changes_nothing() -> None:
    """A member would be told of a state that is in no log, or its next heartbeat be answered as if the first had
    counted."""
    answers = []
    for caller in (Client, Refusing):
        world = World(SETTINGS)
        client = caller(world)
        script = StreamsScript(client, IDS, lambda world=world: world.loop.advance(1.0))  # type: ignore[misc]
        script.run()
        answers.append(script.plain())
        if isinstance(client, Refusing):
            assert client.refusals > 20
    assert answers[0] == answers[1]
