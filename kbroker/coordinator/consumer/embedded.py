"""The subscriptions and assignments that the classic protocol carries as opaque bytes, read and written here for the
classic members of a consumer group.

A 2-byte version, then ConsumerProtocolSubscription or ConsumerProtocolAssignment.  A version later than 3 is read as 3;
some clients claim a version without sending its fields (kafka-go), which are read as far as version 0 goes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.classic.consumer_protocol import SubscriptionError
from kbroker.coordinator.consumer.assignors.group_spec import Assignment
from kbroker.errors import bare
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache

_VERSION = struct.Struct(">h")
_NEWEST = 3


class EmbeddedSubscription(NamedTuple):
    """`owned` maps topic names to partitions."""

    version: int
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> EmbeddedSubscription:
    """A member's subscription.  SubscriptionError when there is none in the bytes."""
    version = _version(data)
    for attempt in dict.fromkeys((min(version, _NEWEST), 0)):
        try:
            read = wire.ConsumerProtocolSubscription.program(attempt).decode(data, _VERSION.size)
        except DecodeError as error:
            failure = bare(error)
            continue
        owned = {each.topic: frozenset(each.partitions) for each in read.owned_partitions or ()}
        return EmbeddedSubscription(min(version, _NEWEST), frozenset(read.topics), owned, read.rack_id)
    raise SubscriptionError(str(failure)) from failure


def read_assignment(data: bytes, cache: MetadataCache) -> tuple[Assignment, bool]:
    """A member's assignment, of topics that exist, and whether an assignor of its own has put data into it.
    SubscriptionError when there is none in the bytes."""
    if not data:
        return {}, False
    try:
        read = wire.ConsumerProtocolAssignment.program(min(_version(data), _NEWEST)).decode(data, _VERSION.size)
    except DecodeError as error:
        raise SubscriptionError(str(error)) from error
    found: dict[bytes, frozenset[int]] = {}
    for each in read.assigned_partitions:
        topic = cache.topic(each.topic)
        if topic is not None and each.partitions:
            found[topic.topic_id] = frozenset(each.partitions)
    return found, bool(read.user_data)


def assignment_bytes(
    assignment: Mapping[bytes, Mapping[int, int] | frozenset[int]], like: bytes, cache: MetadataCache
) -> bytes:
    """The bytes of an assignment, in the version of the member's subscription `like`."""
    assignment_class = wire.ConsumerProtocolAssignment
    version = min(_version(like), _NEWEST)
    named = [(cache.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items()]
    value = assignment_class(
        assigned_partitions=[
            assignment_class.TopicPartition(topic=topic.name, partitions=sorted(partitions))
            for topic, partitions in named
            if topic is not None
        ]
    )
    return assignment_class.program(version).encode(value, _VERSION.pack(version))


def owned_by_id(owned: Mapping[str, frozenset[int]], cache: MetadataCache) -> Assignment:
    """Owned partitions by topic id; topics that are gone are left out."""
    topics = [(cache.topic(name), partitions) for name, partitions in owned.items()]
    return {topic.topic_id: partitions for topic, partitions in topics if topic is not None}


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise SubscriptionError(f"{len(data)} bytes have no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise SubscriptionError(f"version {version}")
    return version
