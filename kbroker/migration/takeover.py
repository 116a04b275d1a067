"""A kbroker's metadata store becomes the metadata log of the same node as its quorum's one controller.

The steps are those of `kbroker export --in-place`, at a start: once the log is there, whole and durable, the store is
renamed to `kbroker-metadata.sqlite.exported`.  Before that the store counts, and the next start begins anew; after it
the log.  `kbroker import` is the way back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.new_log import begin_log
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.migration.export_plan import Node, Stored, plan_export
from kbroker.migration.state_topics import read_state_names
from kbroker.migration.stored_metadata import (
    Earlier,
    ExportRefusedError,
    check_all_here,
    contents,
    earlier_log,
    partitions_of_topics,
)
from kbroker.startup.metadata_rebuild import survey
from kbroker.startup.new_store import EXPORTED_SUFFIX
from kbroker.startup.strays_at_start import check_strays
from kbroker.storage.directories.log_dirs import LogDirError

if TYPE_CHECKING:
    from kbroker.cluster.raft.voter_set import VoterSet
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.broker")

RELEASE = "4.3"
"""The log has the store's levels of features, as far as this release of Kafka has them."""


def take_over(
    files: FileSystem,
    directories: Sequence[LogDir],
    keeper: LogDir,
    node_id: int,
    voters: int | VoterSet,
    *,
    accepts_strays: bool,
) -> None:
    """Make the store in the first of the opened `directories` the log of `keeper`.  LogDirError, OSError.

    `voters`: see `begin_log`.  `accepts_strays`: partitions that the store does not know are set aside, however many.
    """
    paths = [each.path for each in directories]
    store_path = f"{paths[0]}/{FILE_NAME}"
    try:
        earlier = earlier_log(files, paths)
        _check_place(earlier, keeper)
        stored, epoch = _read(files, paths, earlier, accepts_strays=accepts_strays)
        for each in directories:
            each.bind(stored.cluster_id, node_id)
        found = survey(files, paths)
        partitions = partitions_of_topics(stored, found.partitions)
        check_all_here(stored, node_id, found.partitions, partitions)
        ids = {each.path: each.meta.directory_id for each in directories if each.meta is not None}
        places = {each.topic_partition: ids[each.path.rpartition("/")[0]] for each in partitions}
        node = Node(node_id, epoch, sorted(ids.values()), places)
        plan = plan_export(stored, node, RELEASE, read_state_names(files, found.partitions).groups)
        begin_log(files, keeper.path, earlier.snapshot(epoch), plan.records, SYSTEM_CLOCK.now_ms(), voters)
    except (ExportRefusedError, MetadataLogError) as error:
        raise LogDirError(
            f"the metadata store {store_path} cannot become the metadata log of a controller: {error}"
        ) from error
    files.rename(store_path, store_path + EXPORTED_SUFFIX)
    files.fsync_directory(paths[0])
    logger.warning(
        "%s has become the metadata log of this node, which is its cluster's controller from now on, with %d topics; "
        "what it was is kept as %s",
        store_path,
        len(stored.topics),
        store_path + EXPORTED_SUFFIX,
    )
    for text in plan.left:
        logger.warning("left out of the metadata log: %s", text)


def _check_place(earlier: Earlier, keeper: LogDir) -> None:
    """LogDirError where a log is in another directory than the one that is to have it."""
    if earlier.end_offset and earlier.directory != keeper.path:
        raise LogDirError(
            f"there is an older metadata log in {earlier.directory}, and the node's is to be in {keeper.path}: set "
            f"metadata.log.dir={earlier.directory}"
        )


def _read(files: FileSystem, paths: Sequence[str], earlier: Earlier, *, accepts_strays: bool) -> tuple[Stored, int]:
    """What the store holds, and the epoch of a life of the broker that follows all others.  LogDirError."""
    store = LocalStore.open(Path(paths[0]) / FILE_NAME)
    try:
        image = ClusterImage.of(store.cluster_id, topics=store.topics())
        if not accepts_strays:
            check_strays(files, paths, store, image)
        return contents(store, earlier.security), store.begin_broker_epoch()[0]
    finally:
        store.close()
