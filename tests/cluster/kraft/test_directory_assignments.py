"""Which replicas a broker tells the directories of.  Of `kbroker.cluster.kraft.directory_assignments`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from kbroker._fast.base.slices import Slices
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.kraft.directory_assignments import Assignment, DirectoryAssignments, assignments, request_rows
from kbroker.cluster.requests import BrokerEpoch
from kbroker.errors import NotControllerError
from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage
from kbroker.schemas import wire
from kbroker.types import TopicPartition

US, OTHER = 9, 2
ONE, TWO, THEIRS = b"1" * 16, b"2" * 16, b"t" * 16
UNASSIGNED = bytes(15) + b"\1"
TOPIC_ID = b"T" * 16


def topic(*own: bytes | None) -> TopicImage:
    """A topic whose partitions have a replica on the other broker and, in the directory given, on this one."""
    rows = []
    for index, directory in enumerate(own):
        replicas = (OTHER, US) if directory is not None else (OTHER,)
        directories = (THEIRS,) if directory is None else (THEIRS, directory)
        rows.append(PartitionImage(index, OTHER, 0, replicas, (OTHER,), directories=directories))
    return TopicImage("t", TOPIC_ID, tuple(rows))


def test_only_replicas_that_are_elsewhere_than_the_log_says_are_told() -> None:
    """A replica whose directory the controllers do not know never leads; one that is told again and again is noise."""
    held = {TopicPartition("t", 0): ONE, TopicPartition("t", 1): TWO, TopicPartition("t", 3): ONE}
    topics, pace = [topic(UNASSIGNED, TWO, None, TWO, UNASSIGNED)], Slices(slice_us=0).pace()

    async def main() -> dict[TopicPartition, Assignment]:
        return await assignments(topics, US, held.get, pace)

    found = asyncio.run(main())
    assert found == {
        TopicPartition("t", 0): Assignment(TOPIC_ID, 0, ONE),
        TopicPartition("t", 3): Assignment(TOPIC_ID, 3, ONE),
    }
    (row,) = request_rows(found.values())
    assert (row.id, [each.partition_index for each in row.topics[0].partitions]) == (ONE, [0, 3])


class Controllers:
    """Take what they are told, after some refusals."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.told: list[tuple[bytes, int]] = []

    async def assign_directories(
        self, _broker: BrokerEpoch, directories: list[wire.AssignReplicasToDirsRequest.DirectoryData]
    ) -> wire.AssignReplicasToDirsResponse:
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise NotControllerError()
        answer = wire.AssignReplicasToDirsResponse
        self.told += [(each.id, row.partition_index) for each in directories for row in each.topics[0].partitions]
        return answer(
            directories=[
                answer.DirectoryData(
                    id=each.id,
                    topics=[
                        answer.TopicData(
                            topic_id=rows.topic_id,
                            partitions=[
                                answer.PartitionData(partition_index=row.partition_index) for row in rows.partitions
                            ],
                        )
                        for rows in each.topics
                    ],
                )
                for each in directories
            ]
        )


def test_a_replica_is_told_once_it_has_a_log_and_until_a_controller_has_heard() -> None:
    """With more than one directory, a topic's new replicas would never lead: the controllers leave them unassigned."""

    async def main() -> None:
        controllers = Controllers(refusals=1)
        held: dict[TopicPartition, bytes] = {}
        image = ClusterImage.of("c", topics=[topic(UNASSIGNED)])
        looked = asyncio.Event()

        def is_pending(_topic: str, _index: int) -> bool:
            looked.set()
            return not held

        telling = DirectoryAssignments(
            asyncio.get_running_loop(),
            Slices(slice_us=0),
            cast("ControllerChannel", controllers),
            lambda: BrokerEpoch(US, 1),
            lambda: image,
            held.get,
            is_pending,
        )
        delta = MetadataDelta(created=tuple(image.topics.values()))
        telling.follow(image, image, delta)
        await looked.wait()
        assert not controllers.told
        held[TopicPartition("t", 0)] = TWO
        while not controllers.told:
            await asyncio.sleep(0.01)
        assert controllers.told == [(TWO, 0)]
        # The log says the same by now, and nothing is told again.
        image = replace(image, topics={"t": topic(TWO)})
        telling.follow(image, image, MetadataDelta(created=tuple(image.topics.values())))
        for _ in range(20):
            await asyncio.sleep(0)
        assert controllers.told == [(TWO, 0)]
        telling.close()

    asyncio.run(asyncio.wait_for(main(), 60))
