"""Random requests to an active controller whose log commits late and whose lead is lost now and then.

What is committed is read by `tests.simulation.kraft.state`, which knows the records by itself, and by the image that
brokers have: both come to the controller's own state when all is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    Reassignment,
)
from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaError, NotControllerError
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, FeatureUpdate
from kbroker.metadata.image import ClusterImage, ConfigResource, PartitionImage
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from kbroker.schemas import wire
from tests.cluster.controller.led import Led, StandInLog, at, bootstrap, directory, setting
from tests.simulation.kraft.state import MetadataState, seen_of
from tests.unbroken import UNBROKEN

NODES = (1, 2, 3, 4)
NAMES = ("a", "b.c", "d")
STEPS = 150


class Walk:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        unclean = str(self.rng.random() < 0.3).lower()
        # Half of them stop at each step of a decision.
        slices = Slices(slice_us=0) if seed % 2 else UNBROKEN
        self.led = Led({"unclean.leader.election.enable": unclean}, slices=slices)
        self.judge = MetadataState()
        self.judged = 0
        self.pending: list[asyncio.Task[Any]] = []
        self.lives = dict.fromkeys(NODES, 0)
        self.done: dict[str, int] = {}

    async def run(self) -> None:
        await self._lead()
        for _ in range(STEPS):
            self._ask()
            if self.rng.random() < 0.1:
                continue
            await self._settle()
            self._check_sane(self.led.written)
            chance = self.rng.random()
            if chance < 0.5:
                await self._commit(self.rng.random() < 0.7)
            elif chance < 0.54:
                await self._lose()
        await self._commit(True)
        await self._end()

    async def _lead(self) -> None:
        led = self.led
        led.log = StandInLog(led.metadata, led.log.epoch + 1, led.metadata.applied_offset + 1)
        await led.controller.lead(led.log, bootstrap(elr=self.rng.randint(0, 1)))

    async def _settle(self) -> None:
        """Let all decisions come to their end."""
        quiet = 0
        while quiet < 15:
            await asyncio.sleep(0)
            quiet = 0 if self.led.controller._changing.locked() else quiet + 1

    async def _commit(self, has_all: bool) -> None:
        """Some of what waits, or all."""
        await self._settle()
        log = self.led.log
        log_ends = [base + len(records) for base, records in log.batches]
        ends = [end for end in log_ends if end > self.led.metadata.applied_offset + 1]
        if ends:
            await log.release(ends[-1] if has_all else self.rng.choice(ends))
        await self._settle()
        self._judge()
        if has_all:
            self._check_same()

    def _judge(self) -> None:
        """The committed records, read by the judge."""
        applied = self.led.metadata.applied_offset
        for base, records in self.led.log.batches:
            if self.judged <= base <= applied:
                for at_offset, record in enumerate(records, base):
                    self.judge.apply(record, at_offset)
                self.judged = base + len(records)
        assert seen_of(self.led.metadata.recorded) == self.judge.seen()

    def _check_same(self) -> None:
        written, recorded = self.led.written, self.led.metadata.recorded
        assert what_counts(written) == what_counts(recorded)
        assert seen_of(written) == self.judge.seen()
        assert written.topics.keys() == {topic.name for topic in written.topics_by_id.values()}
        assert self.led.metadata.next_producer_id == self.judge.next_producer_id
        marked = {
            (topic.name, each.partition): each.offline_replicas
            for topic in written.topics.values()
            for each in topic.partitions
            if each.offline_replicas
        }
        assert marked == offline(written)

    @staticmethod
    def _check_sane(image: ClusterImage) -> None:
        active = {each.node_id for each in image.active_brokers()}
        for topic in image.topics.values():
            for each in topic.partitions:
                assert each.leader == -1 or (each.leader in each.isr and each.leader in active), (topic.name, each)
                assert set(each.isr) <= set(each.replicas)
                assert not set(each.isr) & set(each.elr)
                assert len(each.directories) == len(each.replicas)
                assert each.leader not in each.offline_replicas

    async def _lose(self) -> None:
        """Another node leads for a moment; what was not committed is gone."""
        for _ in range(self.rng.choice([0, 0, 10, 50])):
            await asyncio.sleep(0)
        self.led.log.lose()
        self.led.controller.resign()
        await self._settle()
        self._judge()
        assert all(each.done() for each in self.pending)
        await self._end()
        self.judged = self.led.metadata.applied_offset + 1
        await self._lead()
        if not self.led.log.batches:
            self._check_same()

    async def _end(self) -> None:
        for each in self.pending:
            try:
                await each
            except NotControllerError:
                self.done["lost"] = self.done.get("lost", 0) + 1
            except KafkaError as error:
                assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR
        self.pending = []

    # What is asked

    def _ask(self) -> None:
        kinds = [name for name in dir(self) if name.startswith("ask_")]
        weights = [4 if name in ("ask_heartbeat", "ask_isr", "ask_register") else 1 for name in kinds]
        name = self.rng.choices(kinds, weights)[0]
        asked: Coroutine[Any, Any, Any] | None = getattr(self, name)()
        if asked is not None:
            self.done[name] = self.done.get(name, 0) + 1
            self.pending.append(asyncio.create_task(asked))

    def _some(self, values: Sequence[int]) -> list[int]:
        return self.rng.sample(values, self.rng.randint(1, len(values)))

    def _partition(self) -> tuple[str, PartitionImage] | None:
        rows = [(topic.name, each) for topic in self.led.written.topics.values() for each in topic.partitions]
        return self.rng.choice(rows) if rows else None

    def ask_create(self) -> Any:
        name = self.rng.choice(NAMES)
        configs = {"min.insync.replicas": str(self.rng.randint(1, 3))} if self.rng.random() < 0.5 else {}
        if self.rng.random() < 0.5:
            new = NewTopic(name, self.rng.randint(1, 3), self.rng.randint(1, 3), configs=configs)
        else:
            count = self.rng.randint(1, 3)
            assigned = [(number, self.rng.sample(NODES, count)) for number in range(2)]
            new = NewTopic(name, assignments=assigned, configs=configs)
        return self.led.controller.create_topics([new])

    def ask_delete(self) -> Any:
        topics = [*self.led.written.topics.values()]
        if topics and self.rng.random() < 0.5:
            return self.led.controller.delete_topics([self.rng.choice(topics).topic_id])
        return None

    def ask_grow(self) -> Any:
        return self.led.controller.create_partitions([NewPartitions(self.rng.choice(NAMES), self.rng.randint(1, 5))])

    def ask_configure(self) -> Any:
        value = self.rng.choice(["1", "2", None])
        kind, name = self.rng.choice([(2, "a"), (2, "d"), (4, ""), (4, "1"), (32, "g")])
        key = "consumer.session.timeout.ms" if kind == 32 else "min.insync.replicas"
        value = "50000" if kind == 32 and value else value
        alteration = ConfigAlteration(ConfigResource(kind, name), [setting(key, value)])
        return self.led.controller.alter_configs([alteration])

    def ask_quota(self) -> Any:
        edit = QuotaEdit("producer_byte_rate", self.rng.choice([1.0, 2.0, None]))
        return self.led.controller.alter_client_quotas([EntityAlteration((("user", "u"),), [edit])])

    def ask_features(self) -> Any:
        number = self.rng.randint(0, 1)
        return self.led.controller.update_features([FeatureUpdate(ELIGIBLE_LEADER_REPLICAS, number, 2 - number)])

    def ask_ids(self) -> Any:
        node_id = self.rng.choice(NODES)
        return self.led.controller.allocate_producer_ids(BrokerEpoch(node_id, self._epoch(node_id)))

    def _epoch(self, node_id: int) -> int:
        broker = self.led.written.brokers.get(node_id)
        return -1 if broker is None else int(broker.epoch)

    def ask_register(self) -> Any:
        node_id = self.rng.choice(NODES)
        self.led.now += self.rng.choice([0, 5, 10])
        self.lives[node_id] += self.rng.random() < 0.7
        fields = {
            "log_dirs": [directory(node_id, number) for number in self._some(range(3))],
            "previous_broker_epoch": self.rng.choice([-1, self._epoch(node_id)]),
        }
        return self.led.controller.register_broker(self.led.registration(node_id, self.lives[node_id], **fields))

    def ask_heartbeat(self) -> Any:
        node_id = self.rng.choice(NODES)
        broker = self.led.written.brokers.get(node_id)
        self.led.now += self.rng.random()
        chance = self.rng.random()
        lost = [] if broker is None or chance < 0.95 else self._some(range(3))
        request = wire.BrokerHeartbeatRequest(
            broker_id=node_id,
            broker_epoch=self._epoch(node_id),
            current_metadata_offset=self.led.log.end_offset - self.rng.choice([1, 1, 1, 5]),
            want_fence=chance < 0.1,
            want_shut_down=0.05 < chance < 0.25,
            offline_log_dirs=[directory(node_id, number) for number in lost],
            cordoned_log_dirs=self.rng.choice([None, [], [directory(node_id)]]),
        )
        return self.led.controller.heartbeat(request)

    def ask_isr(self) -> Any:
        found = self._partition()
        if found is None or found[1].leader < 0:
            return None
        name, row = found
        members = dict.fromkeys([row.leader, *self._some(row.replicas)])
        isr = [(each, self.rng.choice([-1, self._epoch(each)])) for each in members]
        change = IsrChange(at(name, row.partition), row.leader_epoch, row.partition_epoch, isr)
        broker = BrokerEpoch(row.leader, self._epoch(row.leader))
        return self.led.controller.alter_partitions(broker, [change])

    def ask_move(self) -> Any:
        found = self._partition()
        if found is None:
            return None
        target = None if self.rng.random() < 0.2 else self._some(NODES)
        return self.led.controller.alter_reassignments([Reassignment(at(found[0], found[1].partition), target)])

    def ask_elect(self) -> Any:
        return self.led.controller.elect_leaders(ElectionType(self.rng.randint(0, 1)), None)

    def ask_assign(self) -> Any:
        found, node_id = self._partition(), self.rng.choice(NODES)
        if found is None:
            return None
        made = wire.AssignReplicasToDirsRequest
        rows = [made.PartitionData(partition_index=found[1].partition)]
        topics = [made.TopicData(topic_id=self.led.written.topics[found[0]].topic_id, partitions=rows)]
        place = made.DirectoryData(id=directory(node_id, self.rng.randint(0, 3)), topics=topics)
        return self.led.controller.assign_directories(
            made(broker_id=node_id, broker_epoch=self._epoch(node_id), directories=[place])
        )

    def ask_unregister(self) -> Any:
        return self.led.controller.unregister_broker(self.rng.choice(NODES)) if self.rng.random() < 0.3 else None

    def ask_fence(self) -> Any:
        return self.led.controller.fence_stale()

    def ask_balance(self) -> Any:
        return self.rng.choice([self.led.controller.balance, self.led.controller.elect_uncleanly])()

    def ask_no_op(self) -> Any:
        return self.led.controller.write_no_op()


def what_counts(image: ClusterImage) -> list[Any]:
    """All that records say."""
    topics = {
        name: replace(topic, partitions=tuple(replace(each, offline_replicas=()) for each in topic.partitions))
        for name, topic in image.topics.items()
    }
    return [image.brokers, topics, image.configs, image.quotas, dict(image.features.chosen), image.security]


def offline(image: ClusterImage) -> dict[tuple[str, int], tuple[int, ...]]:
    """Which replicas are in directories that their brokers do not have, worked out anew."""
    found = {}
    for topic in image.topics.values():
        for each in topic.partitions:
            gone = tuple(
                node
                for node, place in zip(each.replicas, each.directories, strict=True)
                if node in image.brokers
                and place > bytes(16)[:15] + b"\x02"
                and place not in image.brokers[node].log_dirs
            )
            if gone:
                found[topic.name, each.partition] = gone
    return found


@pytest.mark.parametrize("seed", range(40))
def test_what_is_committed_comes_to_what_was_decided(seed: int) -> None:
    """The next controller would decide by another state than the one that answered clients."""
    asyncio.run(Walk(seed).run())


def test_the_walks_come_to_all_requests() -> None:
    """They would prove nothing of those that they never make."""
    walks = [Walk(seed) for seed in range(5)]
    for walk in walks:
        asyncio.run(walk.run())
    done = {name for walk in walks for name in walk.done}
    assert done == {"lost"} | {name for name in dir(Walk) if name.startswith("ask_")}
