"""Whether a start may set partitions aside: not without being asked to, where the store knows fewer than it does not.

What is in no topic of the metadata store is set aside as `-stray` and not served (`storage.directories.strays`).  A few
are left by a crash while topics were deleted, and the store remembers those (`metadata.deleted_topics`).  Many are a
store that has lost its topics: it is damaged, an old copy, or of another directory.

The broker that keeps the store asks, for all directories of its host.  A member of a KRaft cluster sets aside what
its controllers do not know, as Apache Kafka's broker does: topics may well have been deleted while it was away.  A
member of a ZooKeeper cluster leaves topics alone that it does not know.  What brokers of a cluster set aside while they
run (`replication.stray_replicas`) is of topics that the metadata do name, with another place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kbroker.metadata.topic_names import is_internal
from kbroker.storage.directories.log_dirs import LogDirError, parse_partition_directory
from kbroker.storage.log.partition_metadata import (
    PARTITION_METADATA,
    CorruptPartitionMetadataError,
    decode_partition_metadata,
)
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.metadata.local_store import LocalStore
    from kbroker.storage.files.filesystem import FileSystem

SETTING: Final = "kbroker.accept.strays"
SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Found:
    """A partition's directory.  `is_stray`: the store does not say why it is there."""

    topic: str
    is_stray: bool


def check_strays(files: FileSystem, directories: Iterable[str], store: LocalStore, image: ClusterImage) -> None:
    """LogDirError where a start would set aside more partitions than it keeps, the internal topics' counted or not."""
    found = list(_partitions(files, directories, image.topics, store.deleted_topics()))
    shown = [each for each in found if not is_internal(each.topic)]
    if not _has_more_strays(found) and not _has_more_strays(shown):
        return
    strays = [each.topic for each in found if each.is_stray]
    topics = sorted(set(strays))
    named = ", ".join(topics[:SHOWN]) + (f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else "")
    why = "".join(f". {each.text[0].upper()}{each.text[1:]}" for each in store.damages)
    raise LogDirError(
        f"the metadata store {store.path} does not know {len(strays)} of the {len(found)} partitions in the log "
        f"directories ({named}): this start would set them aside as -stray, and serve them no more{why}. The "
        "directories are untouched. Restore the right store from a backup, or move this one away and make one from the "
        "directories (`kbroker metadata rebuild`, docs/operations.md). If they are to be set aside, start once with "
        f"--accept-strays ({SETTING}=true, in a container KBROKER_ACCEPT_STRAYS=true)"
    )


def _has_more_strays(found: Sequence[_Found]) -> bool:
    return 2 * sum(each.is_stray for each in found) > len(found)


def _partitions(
    files: FileSystem, directories: Iterable[str], topics: Mapping[str, TopicImage], deleted: frozenset[bytes]
) -> Iterator[_Found]:
    """All that are there, but for those of deleted topics."""
    for directory in directories:
        ids: dict[str, bytes] = {}
        for entry in files.list_directory(directory):
            parsed = parse_partition_directory(entry.name) if entry.is_directory else None
            if parsed is None or parsed.mark:
                continue
            topic_id = ids.get(parsed.topic, ZERO_UUID)
            if topic_id == ZERO_UUID:  # One file says it for all: this would be a second of a start with 100,000.
                path = f"{directory}/{entry.name}/{PARTITION_METADATA}"
                topic_id = ids[parsed.topic] = _topic_id(files, path)
            known = topics.get(parsed.topic)
            is_stray = (
                known is None
                or (topic_id not in (known.topic_id, ZERO_UUID) and known.topic_id != ZERO_UUID)
                or parsed.partition >= len(known.partitions)
            )
            if not (is_stray and topic_id in deleted):
                yield _Found(parsed.topic, is_stray)


def _topic_id(files: FileSystem, path: str) -> bytes:
    with suppress(OSError, CorruptPartitionMetadataError):
        return decode_partition_metadata(files.read_file(path), path)
    return ZERO_UUID
