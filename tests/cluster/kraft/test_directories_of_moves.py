"""What the controllers hear of the directories of replicas: that one has moved to another, or may not be led here.

Of `kbroker.assembly.membership.kraft`, `kbroker.cluster.kraft.directory_assignments`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.assembly.membership.kraft import KRaftMembership
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.kraft.batches import records_of, whole_batches
from kbroker.cluster.kraft.directory_assignments import DirectoryAssignments
from kbroker.cluster.requests import BrokerEpoch
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, PartitionImage, TopicImage
from kbroker.replication.pending_roles import PendingRoles
from kbroker.schemas import wire
from kbroker.storage.directories.directory_plans import MoveTotals
from kbroker.types import TopicPartition
from tests.cluster.kraft.asking import ask
from tests.cluster.kraft.processes import Cluster, Kbroker, running
from tests.compat.waiting import wait_for

US, OTHER = 1, 2
MANY = 1_000
NAME = TopicPartition("t", 0)
IDS = {"/one": b"1" * 16, "/two": b"2" * 16}
TOPIC = TopicImage("t", b"T" * 16, (PartitionImage(0, US, 0, (US,), (US,), directories=(IDS["/one"],)),))


class Broker:
    """What a membership needs of one: a replica in the directory /one, which can move."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.log = SimpleNamespace(parent="/one")
        directories = [
            SimpleNamespace(path=path, meta=SimpleNamespace(directory_id=each)) for path, each in IDS.items()
        ]
        self.plans = SimpleNamespace(totals=MoveTotals())
        self.logs = {NAME: self.log}
        self.pending_roles = PendingRoles()
        manager = SimpleNamespace(plans=self.plans, get_log=self.logs.get, online_directories=lambda: directories)
        broker: Any = SimpleNamespace(log_manager=manager, slices=Slices())
        unused: Any = None
        self.membership = KRaftMembership(broker, unused, unused)
        made: Any = self.membership
        made._member = SimpleNamespace(epoch=1)
        made._parts = SimpleNamespace(
            replicas=SimpleNamespace(
                roles=SimpleNamespace(given_up=(), pending=self.pending_roles),
                logs=SimpleNamespace(without_room=(), late_count=0, is_deferred=lambda _: False),
            )
        )
        made._replication = SimpleNamespace(periodic_tasks=list)
        made._directories = DirectoryAssignments(
            asyncio.get_running_loop(),
            broker.slices,
            cast("ControllerChannel", self),
            lambda: BrokerEpoch(US, 1),
            lambda: ClusterImage.of("c", topics=[TOPIC]),
            made._directory_of,
            made._awaits_log,
        )
        self.directories = made._directories

    async def assign_directories(
        self, _broker: BrokerEpoch, directories: list[wire.AssignReplicasToDirsRequest.DirectoryData]
    ) -> wire.AssignReplicasToDirsResponse:
        """The controllers take all that they are told."""
        answer = wire.AssignReplicasToDirsResponse
        self.told += [each.id for each in directories]
        rows = [
            answer.TopicData(topic_id=TOPIC.topic_id, partitions=[answer.PartitionData(partition_index=0)])
            for _ in directories
        ]
        return answer(directories=[answer.DirectoryData(id=each.id, topics=rows) for each in directories])

    async def look(self) -> None:
        """Run what the membership runs from time to time."""
        for task in self.membership.periodic_tasks():
            made = task.run()
            if asyncio.iscoroutine(made):
                await made
        for _ in range(20):
            await asyncio.sleep(0)


def test_a_finished_move_is_told_though_nothing_in_the_metadata_changes() -> None:
    """The controllers would take the replica for lost with the directory that it has left, and for there with one that
    has failed."""

    async def main() -> None:
        broker = Broker()
        await broker.look()
        assert broker.told == []
        broker.log.parent = "/two"
        broker.plans.totals = MoveTotals(done=1, bytes_copied=100)
        await broker.look()
        assert broker.told == [IDS["/two"]]
        await broker.look()
        assert broker.told == [IDS["/two"]]

    asyncio.run(main())


def test_a_replica_whose_role_is_taken_later_is_told() -> None:
    """The controllers would hear of a topic's first replicas alone, those that have their logs within a slice."""

    async def main() -> None:
        broker = Broker()
        del broker.logs[NAME]
        broker.log.parent = "/two"
        broker.pending_roles.put(TOPIC, TOPIC.partitions[0])
        image = ClusterImage.of("c", topics=[TOPIC])
        broker.directories.follow(image, image, MetadataDelta(created=(TOPIC,)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.told == []
        broker.pending_roles.pop(NAME)
        broker.logs[NAME] = broker.log
        while not broker.told:
            await asyncio.sleep(0.01)
        assert broker.told == [IDS["/two"]]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_is_handed_over_under_controllers_that_know_no_directories() -> None:
    """They would have this broker lead on, and it would never follow again once it leads no more."""

    async def main() -> None:
        membership: Any = Broker().membership
        membership._replication = SimpleNamespace(node_id=US, isr=SimpleNamespace(is_eligible=lambda _node: True))
        for log_dirs, may in (((), False), ((IDS["/one"],), True)):
            image = ClusterImage.of("c", brokers=[BrokerImage(US, {}, log_dirs=log_dirs)])
            membership._parts = SimpleNamespace(cache=SimpleNamespace(image=image))
            assert membership.is_alive(OTHER) is may

    asyncio.run(main())


def recorded(folder: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The directories of the partitions of t as the metadata log of a broker has them, one after the other."""
    topic_id = b""
    for path in sorted((folder / "__cluster_metadata-0").glob("*.log")):
        for batch in whole_batches(path.read_bytes(), str(path)):
            for _, record in records_of(batch, str(path)):
                value = getattr(record, "value", None)
                if isinstance(value, wire.TopicRecord) and value.name == "t":
                    topic_id = bytes(value.topic_id)
                is_placed = isinstance(value, wire.PartitionRecord | wire.PartitionChangeRecord) and value.directories
                if is_placed and bytes(value.topic_id) == topic_id:
                    yield value.partition_id, [bytes(each) for each in value.directories]


def where(cluster: Cluster) -> set[str]:
    """The directories with t-0 or a copy of it."""
    answer = ask(cluster, US, wire.DescribeLogDirsRequest(topics=None), 4)
    return {each.log_dir for each in answer.results if any(topic.name == "t" for topic in each.topics)}


def directory_id(path: str) -> bytes:
    """As its meta.properties has it."""
    lines = (Path(path) / "meta.properties").read_text().splitlines()
    (text,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return base64.urlsafe_b64decode(text + "==")


@pytest.mark.compat
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafkas_controllers_learn_where_a_replica_has_moved(tmp_path: Path) -> None:
    """A directory that fails after the move would have them take the wrong replicas for lost."""
    dirs = [str(tmp_path / f"{name}-{{id}}") for name in ("one", "two")]
    settings = {"log.dirs": ",".join(dirs), "metadata.log.dir": str(tmp_path / "metadata-{id}")}
    with running(tmp_path, (Kbroker, Kbroker), settings=settings) as cluster:
        cluster.create("t", [[US, OTHER]])
        cluster.produce("t", ["before"], 0)
        before = next(iter(where(cluster)))
        (target,) = {each.replace("{id}", str(US)) for each in dirs} - {before}
        metadata = tmp_path / f"metadata-{OTHER}"
        wait_for(lambda: [*recorded(metadata)][-1][1][0] == directory_id(before), "the first directory", seconds=60)
        request = wire.AlterReplicaLogDirsRequest
        topic = request.AlterReplicaLogDirTopic(name="t", partitions=[0])
        ask(cluster, US, request(dirs=[request.AlterReplicaLogDir(path=target, topics=[topic])]), 2)
        wait_for(lambda: where(cluster) == {target}, "the move", seconds=60)
        wait_for(lambda: [*recorded(metadata)][-1][1][0] == directory_id(target), "the controllers to know", seconds=60)


@pytest.mark.compat
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafkas_controllers_learn_every_directory_of_a_large_topic(tmp_path: Path) -> None:
    """A directory that fails would leave some of its partitions with a leader that nobody can reach."""
    dirs = [str(tmp_path / f"{name}-{{id}}") for name in ("one", "two")]
    settings = {"log.dirs": ",".join(dirs), "metadata.log.dir": str(tmp_path / "metadata-{id}")}
    with running(tmp_path, (Kbroker, Kbroker), settings=settings) as cluster:
        cluster.create("t", [[US, OTHER]] * MANY)
        known = {directory_id(each.replace("{id}", str(node))) for each in dirs for node in (US, OTHER)}
        metadata = tmp_path / f"metadata-{OTHER}"

        def unknown() -> int:
            last = dict(recorded(metadata))
            return MANY - len(last) + sum(not set(each) <= known for each in last.values())

        wait_for(lambda: unknown() == 0, "every directory", seconds=60)
