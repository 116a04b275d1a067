"""Formats the directories of a node of a KRaft cluster: its first voters, features and users.

What is refused is in the words of Kafka 4.3.1's `kafka-storage.sh format`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kbroker.cli.storage.format_options import already_formatted
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.bootstrap import feature_records
from kbroker.cluster.kraft.formatting import (
    FormatError,
    NewNode,
    format_directories,
    only_voter,
    parse_initial_controllers,
)
from kbroker.config import ConfigError
from kbroker.metadata.features import METADATA_VERSION
from kbroker.metadata.image import Endpoint
from kbroker.metadata.metadata_record import metadata_record
from kbroker.metadata.release_levels import RELEASES, SCRAM_LEVEL, LevelError, first_levels
from kbroker.metadata.security_image import SecurityDelta
from kbroker.metadata.security_records import records_of_changes
from kbroker.storage.directories.log_dirs import LogDirError, open_directories
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.cli.storage.format_options import Asked
    from kbroker.cluster.raft.voter_set import VoterSet
    from kbroker.config.node_settings import NodeSettings
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.metadata.security_image import ScramCredential, ScramKey
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.types import JsonObject

SMALLEST, LARGEST = -(1 << 15), (1 << 15) - 1
"""Of a level."""


def format_node(
    node: NodeSettings,
    asked: Asked,
    cluster_id: str | None,
    users: Mapping[ScramKey, ScramCredential],
    *,
    ignore_formatted: bool,
) -> JsonObject:
    """Format the directories; what was done, as `--json` has it.  UsageError, ClickException."""
    try:
        node.check_quorum()
        levels = first_levels(asked.release, _levels(asked.features), is_dynamic=not node.voters)
        voters = _voters(node, asked)
        records = _records(levels, users)
        files = FileSystem()
        directories = open_directories(files, node.directories)
        try:
            known = [each for each in directories if each.meta is not None]
            if known and not ignore_formatted:
                raise FormatError(already_formatted(known[0].path))
            chosen = _cluster_id(node, asked, cluster_id, known)
            metadata_dir = directories[node.directories.index(node.metadata_dir)].path
            new = NewNode(chosen, node.node_id, metadata_dir, tuple(records), voters)
            format_directories(files, new, directories, SYSTEM_CLOCK.now_ms())
        finally:
            for each in directories:
                each.release()
    except (ConfigError, FormatError, LevelError, LogDirError) as error:
        raise click.ClickException(str(error)) from None
    return {
        "cluster_id": chosen,
        "node_id": node.node_id,
        "release": RELEASES[levels[METADATA_VERSION]],
        "features": dict(sorted(levels.items())),
        "directories": [_row(new, each, formatted_now=each not in known) for each in directories],
    }


def print_formatted(found: JsonObject) -> None:
    """The same for people."""
    where = f"cluster {found['cluster_id']}  node {found['node_id']}"
    for each in found["directories"]:
        kind = f"{each['kind']}, metadata.version {found['release']}"
        done = f"formatted as {kind}" if each["formatted_now"] else "left as it was"
        click.echo(f"{each['path']}: {done}  {where}  directory {each['directory_id']}")


def _row(new: NewNode, directory: LogDir, *, formatted_now: bool) -> JsonObject:
    assert directory.meta is not None
    return {
        "path": directory.path,
        "formatted_now": formatted_now,
        "kind": new.kind_of(directory.path),
        "directory_id": uuid_to_text(directory.meta.directory_id),
    }


def _levels(features: tuple[str, ...]) -> dict[str, int]:
    """Of `name=level` options; the last one of a name counts, as with Kafka."""
    found = {}
    for each in features:
        name, equals, text = each.partition("=")
        if not equals:
            raise click.UsageError(f"Can't parse feature=level string {each}: equals sign not found.")
        try:
            level = int(text)
        except ValueError:
            level = LARGEST + 1
        if not SMALLEST <= level <= LARGEST:
            raise click.UsageError(f"Can't parse feature=level string {each}: unable to parse {text} as a short.")
        found[name.strip()] = level
    return found


def _voters(node: NodeSettings, asked: Asked) -> VoterSet | None:
    """The first voters that the log is to name; None where it names none.  ClickException."""
    if node.voters and (asked.initial_controllers is not None or asked.standalone):
        raise click.ClickException(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if asked.standalone:
        if not node.is_controller:
            raise click.ClickException("You can only use --standalone on a controller.")
        at = node.quorum_listeners[0]
        return only_voter(node.node_id, random_uuid(), Endpoint(at.host, at.port), at.name)
    if asked.initial_controllers is not None:
        return parse_initial_controllers(asked.initial_controllers, node.get("controller.listener.names")[0].upper())
    if node.is_controller and not node.voters and not asked.no_initial_controllers:
        raise click.ClickException(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    return None


def _records(levels: Mapping[str, int], users: Mapping[ScramKey, ScramCredential]) -> list[MetadataRecord]:
    if users and levels[METADATA_VERSION] < SCRAM_LEVEL:
        raise LevelError(f"SCRAM is only supported in metadata.version {RELEASES[SCRAM_LEVEL]} or later.")
    credentials = records_of_changes(SecurityDelta(scram=users))
    return [*feature_records(levels), *(metadata_record(each) for each in credentials)]


def _cluster_id(node: NodeSettings, asked: Asked, given: str | None, known: list[LogDir]) -> str:
    """UsageError where a random one would be another one on each node."""
    found = given or next((each.meta.cluster_id for each in known if each.meta is not None), None)
    if found:
        return found
    is_alone = asked.standalone or set(node.voters) == {node.node_id}
    if not is_alone:
        raise click.UsageError("--cluster-id is needed: it is the same on all nodes of the cluster")
    return uuid_to_text(random_uuid())
