"""The hash of a group's topics, by which a group of the newer kinds detects that a topic that it subscribes to has
changed (KIP-1101).

XXH3 of 64 bits over what Kafka feeds to it, numbers in little endian:

    topic    byte 0 | id, as two int64 | name | int32 partitions | per partition: int32 index, its racks, sorted
    rack     int32 length | name
    name     UTF-16 code units, then int32 how many
    group    the int64 hashes of the topics that exist, by topic name; 0 without any

Topics' hashes are kept with the metadata, which forgets them when a topic or the brokers change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, TopicImage

_VIEW = "group metadata hash"
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_UNSIGNED64 = struct.Struct("<Q")
_ID = struct.Struct(">QQ")
_ID_LITTLE = struct.Struct("<QQ")
_MAGIC = b"\x00"


def metadata_hash(cache: MetadataCache, names: Iterable[str]) -> int:
    """The hash of a group that subscribes to the topics with these names, as a signed 64-bit number."""
    known: dict[str, int] = cache.derived(_VIEW)
    parts: list[bytes] = []
    for name in sorted(names):
        topic = cache.topic(name)
        if topic is None:
            continue
        value = known.get(name)
        if value is None:
            value = known[name] = topic_hash(cache.image, topic)
        parts.append(_UNSIGNED64.pack(value))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(parts))) if parts else 0


def topic_hash(image: ClusterImage, topic: TopicImage) -> int:
    """The hash of one topic, unsigned."""
    parts = [
        _MAGIC,
        _ID_LITTLE.pack(*_ID.unpack(topic.topic_id)),
        _text(topic.name),
        _INT32.pack(len(topic.partitions)),
    ]
    for partition in topic.partitions:
        parts.append(_INT32.pack(partition.partition))
        brokers = (image.brokers.get(node_id) for node_id in partition.replicas)
        for rack in sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None):
            parts.append(_INT32.pack(len(rack.encode("utf-16-le")) // 2))
            parts.append(_text(rack))
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _signed(value: int) -> int:
    return int(_INT64.unpack(_UNSIGNED64.pack(value))[0])
