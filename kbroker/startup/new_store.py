"""A metadata store made at once, for directories that have none.

It is written beside its place and renamed there when it is complete and durable: a start never sees a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.metadata.features import Features
from kbroker.metadata.image import ConfigResource, MetadataDelta, QuotaEntity, TopicImage
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.security_image import SecurityDelta
from kbroker.metadata.spare_file import SUFFIX as SPARE_SUFFIX
from kbroker.startup.metadata_at_start import has_content

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem

PART_SUFFIX = ".rebuilding"
EXPORTED_SUFFIX = ".exported"


class StoreThereError(Exception):
    """There is a metadata store, which is not replaced."""


@dataclass(frozen=True, slots=True)
class StoreContents:
    """What the store shall hold.  No producer id up to `past_producer_id` is given out."""

    topics: Sequence[TopicImage]
    past_producer_id: int
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    features: Features | None = None
    security: SecurityDelta = field(default_factory=SecurityDelta)


def check_no_store(files: FileSystem, directory: str) -> None:
    """StoreThereError where a log directory has a metadata store."""
    for entry in files.list_directory(directory):
        if (
            entry.name.startswith(FILE_NAME)
            and not entry.name.endswith((SPARE_SUFFIX, EXPORTED_SUFFIX))
            and PART_SUFFIX not in entry.name
            and has_content(files, f"{directory}/{entry.name}")
        ):
            raise StoreThereError(
                f"there is a metadata store: {directory}/{entry.name}. If it is lost, move all of "
                f"{directory}/{FILE_NAME}* out of the directory first"
            )


def write_store(files: FileSystem, directory: str, cluster_id: str, contents: StoreContents) -> str:
    """Writes the store into the first log directory; its path.  StoreThereError when there is one."""
    check_no_store(files, directory)
    path = f"{directory}/{FILE_NAME}"
    part = path + PART_SUFFIX
    for entry in files.list_directory(directory):
        if entry.name.startswith(f"{FILE_NAME}{PART_SUFFIX}"):
            files.unlink(f"{directory}/{entry.name}")
    store = LocalStore.open(part, cluster_id)
    try:
        store.write(
            MetadataDelta(
                created=tuple(contents.topics),
                configs=contents.configs,
                quotas=contents.quotas,
                security=contents.security,
                features=contents.features,
            )
        )
        if contents.past_producer_id >= 0:
            store.skip_producer_ids(contents.past_producer_id)
    finally:
        store.close()
    files.sync_path(part)
    files.rename(part, path)
    files.fsync_directory(directory)
    return path
