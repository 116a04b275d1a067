"""Tells the controllers in which log directory each replica of this broker is (KIP-858, AssignReplicasToDirs).

A controller lets a replica lead only where it knows the replica's directory to work.  It fills in the directory of a
broker with one; any other broker says where it has put a replica, and so does one whose replica has moved to another
directory, or whose directory has another id than the log says.  For a replica on a full disk the broker says
LOST_DIRECTORY: the controllers have another one lead, and take it out of the ISR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.requests import BrokerEpoch
from kbroker.errors import ErrorCode, KafkaError
from kbroker.outage import Outage
from kbroker.schemas import wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.cluster.controller_channel import ControllerChannel
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage

logger = logging.getLogger("kbroker.cluster")

MOST_IN_A_REQUEST = 2_250
BACKOFF = ExponentialBackoff(0.1, 5.0)
"""In seconds."""


class Assignment(NamedTuple):
    """Where one replica is."""

    topic_id: bytes
    partition: int
    directory: bytes


def recorded_directory(partition: PartitionImage, node_id: int) -> bytes | None:
    """The directory that the log has for a node's replica; None where the node has none, or the log tells none."""
    if node_id not in partition.replicas:
        return None
    place = partition.replicas.index(node_id)
    return partition.directories[place] if place < len(partition.directories) else None


async def assignments(
    topics: Iterable[TopicImage], node_id: int, held: Callable[[TopicPartition], bytes | None], pace: Pace
) -> dict[TopicPartition, Assignment]:
    """Those that differ from the log.  `held`: the id of the directory where a replica is; None: it has no log."""
    found = {}
    for topic in topics:
        for partition in topic.partitions:
            await pace
            recorded = recorded_directory(partition, node_id)
            if recorded is None:
                continue
            name = TopicPartition(topic.name, partition.partition)
            directory = held(name)
            if directory is not None and directory != recorded:
                found[name] = Assignment(topic.topic_id, partition.partition, directory)
    return found


def request_rows(
    wanted: Iterable[Assignment],
) -> list[wire.AssignReplicasToDirsRequest.DirectoryData]:
    """Assignments as a request has them."""
    request = wire.AssignReplicasToDirsRequest
    by_directory: dict[bytes, dict[bytes, list[int]]] = {}
    for each in wanted:
        by_directory.setdefault(each.directory, {}).setdefault(each.topic_id, []).append(each.partition)
    return [
        request.DirectoryData(
            id=directory,
            topics=[
                request.TopicData(
                    topic_id=topic_id, partitions=[request.PartitionData(partition_index=index) for index in indexes]
                )
                for topic_id, indexes in topics.items()
            ],
        )
        for directory, topics in by_directory.items()
    ]


class DirectoryAssignments:
    """One request at a time, repeated until the controllers have taken it or the log says the same.

    `held`: see `assignments`; `is_pending(topic, partition)`: whether it may get a log yet; `broker()` is this
    broker with its epoch by now.  Thousands of partitions that change at once are looked at in slices.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slices: Slices,
        channel: ControllerChannel,
        broker: Callable[[], BrokerEpoch],
        image: Callable[[], ClusterImage],
        held: Callable[[TopicPartition], bytes | None],
        is_pending: Callable[[str, int], bool],
    ) -> None:
        self._loop = loop
        self._slices = slices
        self._channel = channel
        self._broker = broker
        self._image = image
        self._held = held
        self._is_pending = is_pending
        self._topics: set[str] = set()
        self._sent: dict[TopicPartition, Assignment] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._outage = Outage(logger, logging.INFO, loop.time)

    async def look_at_all(self) -> None:
        """Compare all topics: at a start, and when replicas have moved to other directories."""
        found = await self._differing(self._image().topics.values())
        self._look({name.topic for name in found})

    def look(self, names: Iterable[TopicPartition]) -> None:
        """Compare the topics of these partitions."""
        self._look(name.topic for name in names)

    def follow(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """Compare what has changed in the metadata."""
        topics = {topic.name for topic in (*delta.created, *(change.new for change in delta.changed))}
        self._sent = {name: each for name, each in self._sent.items() if name.topic not in topics}
        self._look(topics)

    def _look(self, topics: Iterable[str]) -> None:
        self._topics.update(topics)
        if self._topics and self._task is None and not self._closed:
            self._task = self._loop.create_task(self._run())

    async def _differing(self, topics: Iterable[TopicImage]) -> dict[TopicPartition, Assignment]:
        return await assignments(topics, self._broker().node_id, self._held, self._slices.pace())

    async def _wanted(self, names: Iterable[str]) -> Mapping[TopicPartition, Assignment]:
        image = self._image()
        wanted = await self._differing([image.topics[name] for name in names if name in image.topics])
        # What was taken is in the log soon.
        left = [(name, each) for name, each in wanted.items() if self._sent.get(name) != each]
        return dict(left[:MOST_IN_A_REQUEST])

    async def _run(self) -> None:
        attempts = 0
        try:
            # A task begins behind the turn in which the image changes, so replicas have their logs, or get them soon.
            while self._topics:
                # What changes while these are looked at is looked at again.
                names, self._topics = self._topics, set()
                wanted = await self._wanted(names)
                left = names if wanted else await self._awaiting_logs(names)
                goes_on = bool(self._topics)
                self._topics |= left
                if wanted and await self._send(wanted):
                    goes_on, attempts = True, 0
                if self._topics and not goes_on:
                    await asyncio.sleep(BACKOFF.backoff(attempts))
                    attempts += 1
        finally:
            self._task = None

    async def _awaiting_logs(self, names: Iterable[str]) -> set[str]:
        pace, found = self._slices.pace(), set()
        for name in names:
            await pace
            topic = self._image().topics.get(name)
            if topic is not None and any(self._is_pending(name, index) for index in range(len(topic.partitions))):
                found.add(name)
        return found

    async def _send(self, wanted: Mapping[TopicPartition, Assignment]) -> bool:
        """Whether the controllers took any."""
        try:
            answer = await self._channel.assign_directories(self._broker(), request_rows(wanted.values()))
        except KafkaError as error:
            text = "the controllers do not hear now in which directories %d replicas are: %s"
            self._outage.failed(text, len(wanted), error)
            return False
        self._outage.over("the controllers hear again in which directories replicas are")
        taken = {
            (topic.topic_id, row.partition_index)
            for directory in answer.directories
            for topic in directory.topics
            for row in topic.partitions
            if not row.error_code or row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        }
        sent = {name: each for name, each in wanted.items() if (each.topic_id, each.partition) in taken}
        self._sent |= sent
        return bool(sent)

    def close(self) -> None:
        """Tell nothing any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
