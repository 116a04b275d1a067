"""Makes log directories those of a node of a KRaft cluster, as `kafka-storage.sh format` of Kafka 4.3.1 does (KIP-853).

A directory gets `bootstrap.checkpoint`, that of the metadata log the first voters where they are given, and at last
meta.properties: a directory that has that file has the others, durably.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

from kbroker.cluster.kraft.bootstrap import (
    BOOTSTRAP_FILE,
    FIRST_VOTERS_FILE,
    bootstrap_checkpoint,
    initial_voters_checkpoint,
)
from kbroker.cluster.raft.election import ReplicaKey
from kbroker.cluster.raft.voter_set import Voter, VoterSet
from kbroker.metadata.image import Endpoint
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY, LogDir
from kbroker.types import RESERVED_UUIDS, uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.storage.files.filesystem import FileSystem

DATA: Final = "data directory"
STATIC: Final = "metadata directory"
OBSERVER: Final = "dynamic metadata directory"
VOTER: Final = "dynamic metadata voter directory"
_NUMBER = re.compile(r"[+-]?[0-9]+")


class FormatError(Exception):
    """Directories that cannot be formatted so; the text says why."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node whose directories are formatted.  `metadata_dir` is the path of the directory of its metadata log;
    `voters` are the first ones, where the log is to name them."""

    cluster_id: str
    node_id: int
    metadata_dir: str
    records: tuple[MetadataRecord, ...]
    voters: VoterSet | None = None

    def kind_of(self, path: str) -> str:
        """What a log directory becomes, in Kafka's words."""
        if path != self.metadata_dir:
            return DATA
        if self.voters is None:
            return STATIC
        return VOTER if self.node_id in self.voters.by_id else OBSERVER

    def directory_id(self, path: str) -> bytes | None:
        """The id that a log directory has to get; None for a random one."""
        if self.voters is None or self.kind_of(path) != VOTER:
            return None
        return self.voters.by_id[self.node_id].key.directory_id


def format_directories(files: FileSystem, node: NewNode, directories: Iterable[LogDir], timestamp_ms: int) -> None:
    """Format opened directories; those that have a meta.properties stay as they are.

    FormatError before anything is written; LogDirError for a directory of another cluster or node; OSError.
    """
    new = [each for each in directories if each.meta is None]
    for each in new:
        _check_has_no_log(files, node, each.path)
    bootstrap = bootstrap_checkpoint(node.records, timestamp_ms)
    for directory in directories:
        if directory in new:
            files.write_atomic(f"{directory.path}/{BOOTSTRAP_FILE}", bootstrap)
            if node.voters is not None and directory.path == node.metadata_dir:
                _write_voters(files, directory.path, node.voters, timestamp_ms)
        directory.bind(node.cluster_id, node.node_id, node.directory_id(directory.path))


def _check_has_no_log(files: FileSystem, node: NewNode, path: str) -> None:
    """FormatError for a metadata log in a directory whose meta.properties is gone: as another directory's log it could
    vote for what was never written there."""
    log = f"{path}/{CLUSTER_METADATA_DIRECTORY}"
    if path != node.metadata_dir or not files.exists(log):
        return
    if any(entry.name.endswith(".log") for entry in files.list_directory(log)):
        raise FormatError(
            f"there is a metadata log in {log}, and no meta.properties says whose: restore that file, or move the log "
            "out of the directory first"
        )


def _write_voters(files: FileSystem, path: str, voters: VoterSet, timestamp_ms: int) -> None:
    folder = f"{path}/{CLUSTER_METADATA_DIRECTORY}"
    files.makedirs(folder)
    files.fsync_directory(path)
    files.write_atomic(f"{folder}/{FIRST_VOTERS_FILE}", initial_voters_checkpoint(voters, timestamp_ms))


# The first voters


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """The voters of `id@host:port:directory-id,…`, which are at that listener.

    FormatError, in Kafka's words (`DynamicVoters`).
    """
    voters: dict[int, Voter] = {}
    for each in filter(None, text.strip().split(",")):
        voter = _voter(each.strip(), listener)
        if voter.key.node_id in voters:
            raise FormatError(f"Node id {voter.key.node_id} was specified more than once.")
        voters[voter.key.node_id] = voter
    if not voters:
        raise FormatError("No voters given.")
    return VoterSet(dict(sorted(voters.items())))


def only_voter(node_id: int, directory_id: bytes, at: Endpoint, listener: str) -> VoterSet:
    """A node that is its whole quorum."""
    return VoterSet({node_id: Voter(ReplicaKey(node_id, directory_id), {listener: at})})


def _voter(text: str, listener: str) -> Voter:
    id_text, at, rest = text.partition("@")
    if not at:
        raise FormatError("No @ found in dynamic voter string.")
    if not id_text:
        raise FormatError("Invalid @ at beginning of dynamic voter string.")
    node_id = _number(id_text, "node id")
    if node_id < 0:
        raise FormatError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise FormatError("No hostname found after node id.")
    host, rest = _host(rest)
    if not rest.startswith(":"):
        raise FormatError("Port section must start with a colon.")
    port_text, colon, id_text = rest[1:].partition(":")
    if not colon:
        raise FormatError("No colon following port could be found.")
    port = _number(port_text, "port")
    if not 0 <= port < 1 << 16:
        raise FormatError(f"Invalid port {port} in dynamic voter string.")
    return Voter(ReplicaKey(node_id, _directory_id(id_text)), {listener: Endpoint(host, port)})


def _number(text: str, what: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise FormatError(f"Failed to parse {what} in dynamic voter string.")
    return int(text)


def _host(text: str) -> tuple[str, str]:
    """The host, and what follows it."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise FormatError("Hostname began with left bracket, but no right bracket was found.")
        return _spelled_out(host), rest
    host, colon, rest = text.partition(":")
    if not colon:
        raise FormatError("No colon following hostname could be found.")
    return host, colon + rest


def _spelled_out(host: str) -> str:
    """An IPv6 address as Java writes it, in full; another host as it is."""
    try:
        groups = IPv6Address(host).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in groups)


def _directory_id(text: str) -> bytes:
    try:
        found = uuid_from_text(text)
    except ValueError as error:
        raise FormatError("Failed to parse directory ID in dynamic voter string.") from error
    if found in RESERVED_UUIDS:
        raise FormatError(f"the directory id {uuid_to_text(found)} is reserved, and no directory has it")
    return found
