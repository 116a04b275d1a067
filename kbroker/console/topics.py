"""Topics, one topic with its partitions, one partition with what becomes of its log.

What is said of a log is what `kbroker logs` says (`storage/reports`).  In a cluster topics are the cluster's, sizes
those of the logs on this broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.group_lag import places_of, reads
from kbroker.console.group_lines import standing_of
from kbroker.console.parameters import NotThereError, keys_of, page_of, view_of
from kbroker.console.partition_source import bounds_elsewhere
from kbroker.console.topic_lines import TopicLine
from kbroker.handlers.topics.config_entries import topic_entries
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.storage.reports.log_description import description, summary
from kbroker.types import TopicPartition, uuid_to_text

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.handlers.topics.config_entries import ConfigEntry
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.storage.reports.log_description import Description

MOST_SEGMENTS = 200
MOST_CONSUMERS = 100


_TOPIC_KEYS: Mapping[str, Key[TopicLine]] = keys_of(
    "topic", "partition_count", "size_bytes", "segment_count", "record_count", "cleanup_policy"
)


async def topics(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/topics?q=&sort=&start=&count="""
    view = view_of(parameters, _TOPIC_KEYS)
    name_of = attrgetter("topic")
    lines = await parts.shown(await parts.topics.get(), ResourceKind.TOPIC, name_of)
    return partial(page_of, lines, view, _TOPIC_KEYS, name_of)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the topic; `is_set`: on the topic itself."""

    name: str
    value: str | None
    source: str
    is_set: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition of the topic.  `first` and `end`: its offsets, None where unknown; `is_moving`: its replicas are
    being moved; `log` is what is known of its log where it is on this broker."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    first: int | None
    end: int | None
    is_moving: bool
    log: Description | None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A group that reads the topic, with its lag there."""

    group_id: str
    group_type: str
    state: str
    member_count: int
    partition_count: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic and a page of its partitions, from `start` on.  `appended`: the sum of the ends of the logs, which only
    grows, so that a browser makes rates of two answers.  `consumers`: the first of `consumer_count`."""

    now_ms: int
    topic: str
    topic_id: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    broker_count: int
    size_bytes: int
    record_count: int
    appended: int
    settings: Sequence[Setting]
    consumer_count: int
    consumers: Sequence[Consumer]
    start: int
    partitions: Sequence[PartitionLine]
    messages_are_shown: bool


async def topic(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/topic?name=&start=&count="""
    image = _topic_image(parts, parameters)
    start = parameters.number("start", 0, 0, 1 << 31)
    shown = image.partitions[start : start + parameters.number("count", 50, 1, 200)]
    pace = parts.sources.slices.pace()
    here = parts.services.log_manager.logs
    away = [key for each in shown if TopicPartition(*(key := (image.name, each.partition))) not in here]
    elsewhere = await bounds_elsewhere(parts, away)
    lines = []
    for each in shown:
        await pace
        lines.append(_partition_line(parts, image.name, each, elsewhere.get((image.name, each.partition))))
    rows = await parts.logs.get()
    own = [row for row in rows.partitions if row.topic == image.name]
    services = parts.services
    consumers = await _consumers(parts, image)
    return partial(
        Topic,
        services.clock.now_ms(),
        image.name,
        uuid_to_text(image.topic_id),
        image.is_internal,
        len(image.partitions),
        image.replication_factor,
        len(services.metadata_cache.image.brokers),
        sum(row.size_bytes for row in own),
        sum(row.high_watermark - row.log_start_offset for row in own),
        sum(row.log_end_offset for row in own),
        [_setting(entry, image) for entry in topic_entries(services.config, image.configs, read=True)]
        if parts.may(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, image.name)
        else [],
        len(consumers),
        consumers[:MOST_CONSUMERS],
        start,
        lines,
        parts.shows_messages_of(image.name),
    )


async def _consumers(parts: ConsoleParts, image: TopicImage) -> list[Consumer]:
    """The groups of this broker that read the topic and that the viewer may describe."""
    services = parts.services
    bounds, pace = await parts.bounds.get(), parts.sources.slices.pace()
    only = {image.name: image}
    found = []
    for group in list(services.group_coordinator.registry.groups.values()):
        await pace
        if not reads(group, image.name) or not parts.may(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            continue
        places = [each for each in await places_of(group, only, bounds, pace) if each.topic == image.name]
        state, name, members = standing_of(group)
        lag = sum(each.lag or 0 for each in places) if places else None
        found.append(Consumer(group.group_id, name, state, members, len(places), lag))
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group_id))


def _topic_image(parts: ConsoleParts, parameters: Parameters) -> TopicImage:
    name = parameters.text("name")
    image = parts.services.metadata_cache.topic(name)
    if image is None or not parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
        raise NotThereError(f"there is no topic {name}")
    return image


def _setting(entry: ConfigEntry, image: TopicImage) -> Setting:
    source = entry.value_source.name.lower().replace("_", " ")
    return Setting(entry.name, entry.value, source, entry.name in image.configs, entry.doc)


def _partition_line(
    parts: ConsoleParts, topic: str, image: PartitionImage, elsewhere: tuple[int, int] | None
) -> PartitionLine:
    manager = parts.services.log_manager
    log = manager.logs.get(TopicPartition(topic, image.partition))
    bounds = elsewhere if log is None else (log.log_start_offset, log.high_watermark)
    return PartitionLine(
        image.partition,
        image.leader,
        image.replicas,
        image.isr,
        None if bounds is None else bounds[0],
        None if bounds is None else bounds[1],
        bool(image.adding_replicas or image.removing_replicas),
        None if log is None else summary(manager, log),
    )


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; `log` has the newest segments and says how many there are."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    log: Description | None
    messages_are_shown: bool


async def partition(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/partition?name=&partition="""
    image = _topic_image(parts, parameters)
    index = parameters.number("partition", 0, 0, 1 << 31)
    if index >= len(image.partitions):
        raise NotThereError(f"topic {image.name} has no partition {index}")
    services = parts.services
    log = services.log_manager.logs.get(TopicPartition(image.name, index))
    found = None
    if log is not None:
        found = description(services.log_manager, log, services.clock, most_segments=MOST_SEGMENTS)
    each = image.partitions[index]
    return partial(
        Partition,
        image.name,
        index,
        each.leader,
        each.leader_epoch,
        each.replicas,
        each.isr,
        found,
        parts.shows_messages_of(image.name),
    )
