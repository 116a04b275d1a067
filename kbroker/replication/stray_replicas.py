"""Logs of replicas that this broker has no more, in a cluster: left by a move that ended while it was away.

The controller tells a broker only of the replicas that it has, and Kafka's controller does not repeat a StopReplica to
a broker that was down when its replica was to be deleted.  Such a log is set aside as `-stray`, as one that a start
finds, and never deleted.  A topic that the metadata do not know is left alone: they may be late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.storage.log.unified_log import UnifiedLog


def stray_replicas(
    image: ClusterImage,
    node_id: int,
    logs: Mapping[TopicPartition, UnifiedLog],
    is_hosted: Callable[[TopicPartition], bool],
    *,
    all_have_ids: bool = False,
) -> Iterator[tuple[TopicPartition, str]]:
    """The partitions whose log is a stray, each with the reason; `is_hosted`: led or followed here.

    `all_have_ids`: each topic of the cluster has had one from its beginning.  Then a log without one may be of a topic
    of that name that was deleted, and its partition.metadata have been lost with the machine's power.
    """
    for name, log in logs.items():
        topic = image.topics.get(name.topic)
        if topic is None or is_hosted(name):
            continue
        if all_have_ids and log.topic_id == ZERO_UUID:
            yield name, f"it does not say which topic of that name it is of: {log.partition_metadata.path}"
        elif _is_of_another(log, topic):
            yield name, "it belongs to a topic of that name that was deleted"
        elif name.partition >= len(topic.partitions):
            yield name, f"its topic has {len(topic.partitions)} partition(s)"
        elif node_id not in topic.partitions[name.partition].replicas:
            yield name, "the broker has no replica of it any more"


def replicas_deleted(image: ClusterImage, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
    """The partitions whose log was loaded for a topic that has been deleted since."""
    found = [(name, log, image.topics.get(name.topic)) for name, log in logs.items()]
    return [name for name, log, topic in found if topic is None or _is_of_another(log, topic)]


def _is_of_another(log: UnifiedLog, topic: TopicImage) -> bool:
    return ZERO_UUID not in (log.topic_id, topic.topic_id) and log.topic_id != topic.topic_id


class StrayReplicas:
    """Finds them from time to time.  A log that was a stray in two looks is given to `retire(partition, reason)`: after
    one look it may still be a replica that has moved away, and that the controller is about to have deleted."""

    def __init__(self, retire: Callable[[TopicPartition, str], None]) -> None:
        self._retire = retire
        self._seen: set[TopicPartition] = set()

    def look(self, found: Iterator[tuple[TopicPartition, str]]) -> None:
        """Take what a look has found."""
        reasons = dict(found)
        for name in self._seen & reasons.keys():
            self._retire(name, reasons.pop(name))
        self._seen = set(reasons)
