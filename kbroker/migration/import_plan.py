"""The plan for importing a Kafka's metadata and directories: a pure decision, shown before anything is written.

A partition is imported if the topic id of its directory is the one in the metadata.  Replicas on other brokers are not,
so each partition has one replica.  Its leader epoch is above all earlier ones, so that clients take the metadata for
newer.  A topic of which only some partitions are here blocks the import (`blockers`), unless the others are to be made
anew, empty; a topic of which none is here is left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kbroker.metadata.image import PartitionImage, TopicImage
from kbroker.metadata.kafka_metadata import has_all
from kbroker.metadata.security_image import SecurityImage
from kbroker.metadata.topic_names import is_internal
from kbroker.migration.settings import client_quotas, feature_levels, resource_settings, topic_settings
from kbroker.startup.metadata_rebuild import FoundPartition, RebuildError, RebuiltTopic
from kbroker.startup.metadata_rebuild import plan as plan_without_metadata
from kbroker.startup.new_store import StoreContents
from kbroker.types import ZERO_UUID, random_uuid

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.kafka_metadata import KafkaMetadata
    from kbroker.metadata.record_deltas import RecordedTopic

SHOWN = 10


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """`partitions` come along; `left` says what does not, `blockers` what must be decided first."""

    topics: tuple[RebuiltTopic, ...]
    partitions: tuple[FoundPartition, ...]
    contents: StoreContents
    left: tuple[str, ...]
    left_directories: tuple[str, ...]
    blockers: tuple[str, ...]


def plan_import(
    metadata: KafkaMetadata, found: Sequence[FoundPartition], config: BrokerConfig, *, add_missing: bool
) -> ImportPlan:
    """The plan for a cluster whose metadata is known."""
    here: dict[tuple[str, int], list[FoundPartition]] = defaultdict(list)
    for each in found:
        here[each.topic_partition].append(each)
    draft = _Draft(config, add_missing)
    for topic in sorted(metadata.topics.values(), key=lambda each: each.name):
        draft.add(topic, metadata.topic_configs(topic.name), here)
    configs, left_settings = resource_settings(metadata.configs, config)
    quotas, left_quotas = client_quotas(metadata.quotas)
    highest = max((each.producer_id for each in found), default=-1)
    contents = StoreContents(
        [topic.image for topic in draft.topics],
        max(metadata.next_producer_id - 1, highest),
        configs,
        quotas,
        feature_levels(metadata.features) if metadata.features else None,
        SecurityImage().difference(metadata.security),
    )
    taken = {each.path for each in draft.partitions}
    return ImportPlan(
        tuple(draft.topics),
        tuple(draft.partitions),
        contents,
        (*draft.left(), *left_settings, *left_quotas),
        tuple(each.path for each in found if each.path not in taken),
        tuple(draft.blockers),
    )


def plan_from_directories(found: Sequence[FoundPartition], config: BrokerConfig, *, add_missing: bool) -> ImportPlan:
    """The plan for a cluster whose metadata is in a ZooKeeper that is not asked."""
    left = (
        "settings of topics and brokers, quotas, ACLs and credentials: they are in ZooKeeper. Name it with "
        "--zookeeper HOST:PORT while it still runs, and they come along. Without it, no topic deletes "
        "or compacts anything until you set what it had",
    )
    try:
        topics = plan_without_metadata(found, config, add_missing=add_missing, keep_everything=True)
        blockers: tuple[str, ...] = ()
    except RebuildError as error:
        topics, blockers = [], (str(error),)
    past = max([int(time.time() * 1000), *(each.producer_id for each in found)])
    contents = StoreContents([topic.image for topic in topics], past)
    return ImportPlan(tuple(topics), tuple(found), contents, left, (), blockers)


class _Draft:
    """Topics one after the other, and what does not come along: a line for each kind."""

    def __init__(self, config: BrokerConfig, add_missing: bool) -> None:
        self._node_id = config.node_id
        self._add_missing = add_missing
        self.topics: list[RebuiltTopic] = []
        self.partitions: list[FoundPartition] = []
        self.blockers: list[str] = []
        self._elsewhere: list[str] = []
        self._replicated: list[str] = []
        self._behind: list[str] = []
        self._tiered: list[str] = []
        self._settings: list[str] = []

    def add(
        self,
        topic: RecordedTopic,
        settings: Mapping[str, str],
        here: Mapping[tuple[str, int], Sequence[FoundPartition]],
    ) -> None:
        """A topic with what is here of it."""
        name = topic.name
        of_topic: dict[int, FoundPartition] = {}
        for number, partition in sorted(topic.partitions.items()):
            fitting = [
                each
                for each in here.get((name, number), ())
                if ZERO_UUID in (topic.topic_id, each.topic_id) or each.topic_id == topic.topic_id
                if self._node_id in partition.replicas
            ]
            if len(fitting) > 1:
                paths = ", ".join(each.path for each in fitting)
                self.blockers.append(f"{name}-{number} is there more than once ({paths}): move the older one away")
            elif fitting:
                of_topic[number] = fitting[0]
        if not of_topic:
            self._elsewhere.append(name)
            return
        notes: list[str] = []
        missing = [f"{name}-{number}" for number in topic.partitions if number not in of_topic]
        if missing:
            brokers = (each.replicas for number, each in topic.partitions.items() if number not in of_topic)
            where = set(chain.from_iterable(brokers))
            text = f"{_some(missing)}: not in these directories (replicas on broker {_some(sorted(where))})"
            if self._add_missing:
                notes.append(f"made anew, empty: {text}")
            else:
                self.blockers.append(f"{text}. With --add-missing they are made anew, empty")
        if any(len(each.replicas) > 1 for each in topic.partitions.values()):
            self._replicated.append(name)
        self._behind += [
            f"{name}-{number}" for number in of_topic if not has_all(topic.partitions[number], self._node_id)
        ]
        if settings.get("remote.storage.enable", "false").lower() == "true":
            self._tiered.append(name)
        kept, refused = topic_settings(settings)
        self._settings += [f"a setting of topic {name}: {reason}" for reason in refused]
        self.partitions.extend(of_topic.values())
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID:
            topic_id = next((each.topic_id for each in of_topic.values() if each.topic_id != ZERO_UUID), random_uuid())
            notes.append("the cluster had no topic ids: it has a new one")
        image = TopicImage(name, topic_id, self._images(topic, of_topic), is_internal(name), kept)
        self.topics.append(RebuiltTopic(image, tuple(notes)))

    def _images(self, topic: RecordedTopic, of_topic: Mapping[int, FoundPartition]) -> tuple[PartitionImage, ...]:
        alone = (self._node_id,)
        images = []
        for number in range(max(topic.partitions) + 1):
            known, found = topic.partitions.get(number), of_topic.get(number)
            epoch = 1 + max(known.leader_epoch if known else -1, found.leader_epoch if found else -1)
            partition_epoch = known.partition_epoch + 1 if known else 0
            images.append(PartitionImage(number, self._node_id, epoch, alone, alone, partition_epoch))
        return tuple(images)

    def left(self) -> list[str]:
        """What does not come along."""
        rows = (
            (self._elsewhere, "topics of which no partition is in these directories"),
            (self._behind, "what these partitions lack: this replica was not in sync when Kafka stopped"),
            (self._tiered, "segments in remote storage, and their topics' remote.storage.enable"),
            (self._replicated, "replicas on other brokers: here each partition of these topics has one"),
        )
        return [f"{text}: {_some(names)}" for names, text in rows if names] + self._settings


def _some(names: Iterable[object]) -> str:
    every = list(map(str, names))
    shown = ", ".join(every[:SHOWN])
    return shown if len(every) <= SHOWN else f"{shown} and {len(every) - SHOWN} more"
