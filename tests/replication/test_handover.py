"""When a broker hands over what it leads on a full disk, and when it takes that back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.client import UnreachableError
from kbroker.cluster.requests import ReplicaReport
from kbroker.replication.handover import CALM_SECONDS, HOLD_SECONDS, ROOM_BYTES, Handover
from kbroker.types import TopicPartition
from tests.storage.batches import HandClock

FULL, OTHER = "/full", "/other"


class Guard:
    def __init__(self, path: str) -> None:
        self.path, self.is_refusing = path, False

    def is_roomy(self, _bytes: int) -> bool:
        return not self.is_refusing


class Elsewhere:
    """The other brokers: `usable` by id, for all that they have; None: not there."""

    def __init__(self, usable: dict[int, int | None]) -> None:
        self.usable = usable

    def of(self, node_id: int) -> Any:
        usable = self.usable[node_id]

        async def ask(response: Any, request: Any, _at_most: int) -> Any:
            if usable is None:
                raise UnreachableError("away")
            topics = [
                response.DescribeLogDirsTopic(
                    name=each.topic,
                    partitions=[response.DescribeLogDirsPartition(partition_index=row) for row in each.partitions],
                )
                for each in request.topics
            ]
            return response(results=[response.DescribeLogDirsResult(topics=topics, usable_bytes=usable)])

        return SimpleNamespace(ask=ask)


class Broker:
    """Broker 1: two log directories and what it leads in them."""

    node_id = 1

    def __init__(self, usable: dict[int, int | None]) -> None:
        self.clock = HandClock(0)
        self.space_guards = [Guard(FULL), Guard(OTHER)]
        self.led: list[Any] = []
        self.reported: list[ReplicaReport] = []
        self.renewals = 0
        manager = SimpleNamespace(space_guards=self.space_guards, get_log=lambda name: name)
        self.refused: set[TopicPartition] = set()
        room = SimpleNamespace(refused=self.refused)
        logs = SimpleNamespace(without_room=room, retry_refused=self.refused.clear)
        roles = SimpleNamespace(given_up=())
        values = {"__iter__": lambda _: iter(self.led), "log_manager": manager, "logs": logs, "roles": roles}
        self.replicas: Any = type("Replicas", (), values)()
        self.handover = Handover(self.replicas, self, Elsewhere(usable), self.clock.monotonic)  # type: ignore[arg-type]

    def lead(self, topic: str, isr: tuple[int, ...], path: str = FULL) -> None:
        name = TopicPartition(topic, 0)
        self.led.append(SimpleNamespace(topic_partition=name, isr=isr, log=SimpleNamespace(parent=path)))

    def is_alive(self, node_id: int) -> bool:
        return node_id != 9

    async def report(self, report: ReplicaReport) -> None:
        self.reported.append(report)

    def renew(self) -> None:
        self.renewals += 1

    async def passes(self, seconds: float) -> None:
        await self.handover.look()
        self.clock.now += int(seconds * 1000)
        await self.handover.look()

    @property
    def given(self) -> set[str]:
        return {name.topic for report in self.reported for name in report.offline}


ROOM, NONE = ROOM_BYTES, ROOM_BYTES - 1


@pytest.mark.parametrize(
    ("usable", "given"),
    [
        ({2: ROOM, 3: ROOM}, {"two", "three"}),
        ({2: NONE, 3: ROOM}, {"three"}),
        ({2: NONE, 3: NONE}, set()),
        ({2: None, 3: NONE}, set()),
        ({2: -1, 3: None}, {"two", "three"}),
    ],
)
def test_what_another_in_sync_replica_has_room_for_is_handed_over(
    usable: dict[int, int | None], given: set[str]
) -> None:
    """Producers would wait for a full disk though others could take their records; or all replicas of a cluster whose
    disks are full would leave its ISRs, one after the other."""

    async def main() -> None:
        broker = Broker(usable)
        broker.lead("two", (1, 2))
        broker.lead("three", (1, 2, 3))
        broker.lead("alone", (1,))
        broker.lead("with-a-dead-one", (1, 9))
        broker.lead("elsewhere", (1, 2, 3), OTHER)
        await broker.passes(HOLD_SECONDS)
        assert broker.reported == []
        broker.space_guards[0].is_refusing = True
        await broker.passes(HOLD_SECONDS / 2)
        assert broker.reported == [], "deletion may make room"
        await broker.passes(HOLD_SECONDS)
        assert broker.given == given
        assert {each.topic for each in broker.replicas.roles.given_up} == given
        problems = [each.text for each in broker.handover.problems()]
        told = f"{len(given)} partitions of log directory {FULL}, which has no space, were handed over to others"
        assert problems == ([told] if given else [])

    asyncio.run(main())


def test_a_controller_is_told_again_until_another_broker_leads() -> None:
    """One that has just been elected does not know of what its predecessor was told."""

    async def main() -> None:
        broker = Broker({2: ROOM})
        broker.lead("t", (1, 2))
        broker.space_guards[0].is_refusing = True
        await broker.passes(HOLD_SECONDS)
        await broker.passes(1)
        assert len(broker.reported) > 1
        broker.led.clear()
        told = len(broker.reported)
        await broker.passes(1)
        assert len(broker.reported) == told

    asyncio.run(main())


def test_a_broker_whose_disk_has_room_again_follows_and_does_not_flap() -> None:
    """Its replicas would be missing for good; or a disk at the line would cost it what it leads every few seconds."""

    async def main() -> None:
        broker = Broker({2: ROOM})
        broker.lead("t", (1, 2))
        for count in (1, 2):
            broker.space_guards[0].is_refusing = True
            await broker.passes(CALM_SECONDS)
            assert broker.given == {"t"}
            broker.space_guards[0].is_refusing = False
            await broker.passes(HOLD_SECONDS / 2)
            assert broker.renewals == count - 1
            await broker.passes(HOLD_SECONDS)
            assert broker.renewals == count
            assert not list(broker.handover.problems())
            broker.reported.clear()
            broker.space_guards[0].is_refusing = True
            await broker.passes(HOLD_SECONDS)
            assert broker.reported == []
            broker.space_guards[0].is_refusing = False

    asyncio.run(main())


def test_a_broker_whose_disk_had_no_room_for_a_new_log_registers_anew_once_there_is_some() -> None:
    """The controller takes that replica for offline: a topic that was deleted meanwhile would never be gone, and its
    name never be free (seed 973)."""

    async def main() -> None:
        broker = Broker({2: ROOM})
        broker.refused.add(TopicPartition("t", 0))
        broker.space_guards[1].is_refusing = True
        await broker.passes(HOLD_SECONDS)
        assert broker.renewals == 0
        broker.space_guards[1].is_refusing = False
        await broker.passes(HOLD_SECONDS)
        assert (broker.renewals, broker.refused) == (1, set())
        await broker.passes(CALM_SECONDS)
        assert broker.renewals == 1

    asyncio.run(main())
