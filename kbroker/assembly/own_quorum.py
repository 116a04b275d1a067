"""What a broker that is its quorum's one controller finds in its log directories, before it takes part in the quorum.

    a metadata log               it goes on with it, its own or that of an Apache Kafka
    a metadata store             that of an earlier kbroker becomes the log (`migration.takeover`)
    nothing                      it formats the directories as a new cluster's
    partitions and none of them  refused

Nodes of several controllers are formatted by `kbroker format`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbroker.assembly.membership.settings import metadata_directory
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.bootstrap import default_bootstrap_records
from kbroker.cluster.kraft.formatting import FormatError, NewNode, format_directories, only_voter
from kbroker.cluster.kraft.segments import SEGMENT
from kbroker.cluster.kraft.snapshots import SNAPSHOT
from kbroker.config.listener import called
from kbroker.metadata.image import Endpoint
from kbroker.metadata.local_store import FILE_NAME
from kbroker.metadata.metadata_record import metadata_record
from kbroker.metadata.security_image import SecurityDelta
from kbroker.metadata.security_records import records_of_changes
from kbroker.startup.metadata_at_start import (
    IMPORTED,
    check_metadata_is_there,
    has_content,
    holds_partitions,
    newest_segment,
    reason_of_kafka_since,
)
from kbroker.startup.strays_at_start import SETTING
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY, LogDirError, describe
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.cluster.raft.voter_set import VoterSet
    from kbroker.config import BrokerConfig
    from kbroker.metadata.security_image import ScramCredential, ScramKey
    from kbroker.storage.directories.log_dirs import LogDir, OpenedDirs
    from kbroker.storage.files.filesystem import FileSystem
    from kbroker.storage.manager.log_manager import LogManager

_NO_USERS: Mapping[ScramKey, ScramCredential] = MappingProxyType({})


def make_ready(config: BrokerConfig, manager: LogManager) -> OpenedDirs:
    """Make the opened directories those of a node with a metadata log; what they say then.  LogDirError, OSError."""
    files, directories = manager.environment.files, manager.online_directories()
    keeper = metadata_directory(config, directories)
    if has_content(files, f"{directories[0].path}/{FILE_NAME}"):
        _take_over(config, files, directories, keeper)
    elif not _has_begun(files, keeper):
        _begin(config, files, directories, keeper)
    found = describe(directories)
    if found.cluster_id is None:
        raise LogDirError(
            f"there is a metadata log in {keeper.path}, and no meta.properties says whose: restore that file, or move "
            "the log out of the directory first"
        )
    return found


def _has_begun(files: FileSystem, keeper: LogDir) -> bool:
    """Whether there is a log, also one without a record yet."""
    folder = f"{keeper.path}/{CLUSTER_METADATA_DIRECTORY}"
    if not files.exists(folder):
        return False
    return any(SEGMENT.match(each.name) or SNAPSHOT.match(each.name) for each in files.list_directory(folder))


def _take_over(config: BrokerConfig, files: FileSystem, directories: list[LogDir], keeper: LogDir) -> None:
    from kbroker.migration.takeover import take_over

    newest = newest_segment(files, keeper.path)
    if newest is not None and newest.size:  # An empty one is of a takeover that was cut off.
        if (reason := reason_of_kafka_since(files, directories)) is not None:
            raise LogDirError(reason)
        if not files.exists(f"{keeper.path}/{IMPORTED}"):
            raise LogDirError(
                f"there are a metadata log in {keeper.path} and a metadata store, {directories[0].path}/{FILE_NAME}, "
                "and each says something else: move the one that is not to count out of the directories"
            )
    if keeper.meta is None:
        raise LogDirError(f"{keeper.path} is new, and is to have the metadata log: start once without it in log.dirs")
    voters = config.node_id if config.get("controller.quorum.voters") else _only_voter(config, keeper.meta.directory_id)
    take_over(files, directories, keeper, config.node_id, voters, accepts_strays=config.get(SETTING))


def _begin(config: BrokerConfig, files: FileSystem, directories: list[LogDir], keeper: LogDir) -> None:
    """Begin a cluster, where that loses none.  LogDirError."""
    folder = f"{keeper.path}/{CLUSTER_METADATA_DIRECTORY}"
    if any(each.meta is not None for each in directories):
        is_dynamic = not config.get("controller.quorum.voters")
        if any(holds_partitions(files, each) for each in directories) or is_dynamic or keeper.meta is None:
            raise LogDirError(
                f"the log directories are in use, and there is no metadata log in {folder}, by which this node is its "
                "cluster's controller. Is the right disk mounted, and the right directory metadata.log.dir, or first "
                "in log.dirs? Restore it from a backup, or make a store from the partitions, without settings, which "
                "the next start takes over: `kbroker metadata rebuild` (docs/operations.md)"
            )
        return
    check_metadata_is_there(files, directories)
    format_alone(config, files, directories, keeper)


def format_alone(
    config: BrokerConfig,
    files: FileSystem,
    directories: Sequence[LogDir],
    keeper: LogDir,
    cluster_id: str | None = None,
    users: Mapping[ScramKey, ScramCredential] = _NO_USERS,
) -> None:
    """Make new, opened directories those of a cluster's one node.  `keeper`: which of them is to have the metadata log.

    `cluster_id`: a random one without it.  `users`: those of SCRAM that the cluster begins with.  LogDirError, OSError.
    """
    voters = None if config.get("controller.quorum.voters") else _only_voter(config, random_uuid())
    first_users = map(metadata_record, records_of_changes(SecurityDelta(scram=users)))
    records = (*default_bootstrap_records(), *first_users)
    new = NewNode(cluster_id or uuid_to_text(random_uuid()), config.node_id, keeper.path, records, voters)
    try:
        format_directories(files, new, directories, SYSTEM_CLOCK.now_ms())
    except FormatError as error:
        raise LogDirError(str(error)) from error


def _only_voter(config: BrokerConfig, directory_id: bytes) -> VoterSet:
    assert config.controller_listener is not None
    name, _ = config.controller_listener
    at = next(called(each) for each in config.shown_controllers if each.name == name)
    return only_voter(config.node_id, directory_id, Endpoint(at.host, at.port), name)
