"""What `kbroker doctor` looks at of a node with the controller role: its directory, the other voters, its listener, and
what the leader of the quorum says of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cli.checks.host_checks import Finding, Level
from kbroker.metadata.image import Endpoint

if TYPE_CHECKING:
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.config import BrokerConfig
    from kbroker.schemas import wire
    from kbroker.storage.directories.log_dirs import MetaProperties

SUBJECT, DIRECTORY, LISTENER = "quorum", "metadata log", "controller listener"
SECONDS = 2.0
LAG_RECORDS = 1000
"""A voter that lacks more is behind: an idle leader writes two records a second."""
SILENT_SECONDS = 10.0


def check_voter(config: BrokerConfig, settings: QuorumSettings) -> Iterator[Finding]:
    """All that concerns the controller role of a node."""
    meta = None
    for found in _check_directory(config):
        if isinstance(found, Finding):
            yield found
        else:
            meta = found
    yield from _check_listeners(config)
    yield from _check_others(config, settings, meta)


def _check_directory(config: BrokerConfig) -> Iterator[Finding | MetaProperties]:
    """What is wrong with the directory of the metadata log; its identity, where it has one."""
    from kbroker.cluster.kraft.quorum_state import QUORUM_STATE, QuorumState, decode_quorum_state
    from kbroker.cluster.kraft.segments import SEGMENT
    from kbroker.metadata.local_store import FILE_NAME as STORE
    from kbroker.storage.directories.log_dirs import (
        CLUSTER_METADATA_DIRECTORY,
        META_PROPERTIES,
        LogDirError,
        decode_meta_properties,
    )

    parent = Path(config.get("metadata.log.dir") or config.log_dirs[0])
    if not config.is_controller_alone:
        # A broker that is a controller as well formats its other directories from one that is.
        places = [parent, *map(Path, config.log_dirs)]
        parent = next((each for each in places if (each / META_PROPERTIES).exists()), parent)
    properties, log = parent / META_PROPERTIES, parent / CLUSTER_METADATA_DIRECTORY
    store = Path(config.log_dirs[0]) / STORE
    if config.is_quorum_of_one and not log.exists() and (store.exists() or not properties.exists()):
        source = f"from {store}" if store.exists() else "with a new cluster"
        yield Finding(Level.OK, DIRECTORY, f"{log} is not there yet: the start begins it, {source}")
        return
    if not properties.exists():
        yield Finding(
            Level.PROBLEM,
            DIRECTORY,
            f"{parent} is not formatted: it does not say which cluster this controller belongs to",
            "kbroker format --cluster-id ID server.properties, with the id that all nodes of the cluster have",
        )
        return
    try:
        meta = decode_meta_properties(properties.read_bytes(), str(properties))
    except (OSError, LogDirError) as error:
        yield Finding(Level.PROBLEM, DIRECTORY, str(error), "restore it; every node of a cluster has its own")
        return
    if meta.node_id != config.node_id:
        yield Finding(
            Level.PROBLEM,
            DIRECTORY,
            f"{parent} belongs to node {meta.node_id}, and this is node {config.node_id}",
            "correct node.id, or metadata.log.dir",
        )
        return
    yield meta
    state, mend = log / QUORUM_STATE, "docs/cluster.md says how a voter is replaced"
    try:
        has_log = log.exists() and any(SEGMENT.match(each.name) for each in log.iterdir())
        known = decode_quorum_state(state.read_bytes()) if state.exists() else None
    except (OSError, ValueError) as error:
        yield Finding(Level.PROBLEM, DIRECTORY, f"{state} cannot be read: {error}", mend)
        return
    if known is None and has_log:
        yield Finding(Level.PROBLEM, DIRECTORY, f"{state} is missing beside a log: the node would not vote", mend)
    elif known is None or known == QuorumState():
        yield Finding(Level.OK, DIRECTORY, f"{log} is new: it has no epoch yet")
    else:
        vote = f"voted for node {known.voted_id}" if known.voted_id >= 0 else "no vote"
        leader = f"node {known.leader_id} led" if known.leader_id >= 0 else "no leader"
        yield Finding(Level.OK, DIRECTORY, f"{log}: epoch {known.epoch}, {leader}, {vote}")


def _check_listeners(config: BrokerConfig) -> Iterator[Finding]:
    from kbroker.security.openness import warnings_of_controllers

    warnings = list(warnings_of_controllers(config))
    for each in warnings:
        yield Finding(Level.WARNING, LISTENER, each, "docs/security.md says how controllers authenticate")
    if not warnings:
        yield Finding(Level.OK, LISTENER, "no stranger on a network may take part in the quorum")


def _check_others(config: BrokerConfig, settings: QuorumSettings, meta: MetaProperties | None) -> Iterator[Finding]:
    """How fast the other voters answer, who leads, and what the leader says of this node."""
    own = {Endpoint(each.host, each.port) for each in (*config.controller_listeners, *config.advertised_controllers)}
    names: dict[Endpoint, str] = dict.fromkeys(settings.bootstrap, "controller")
    names |= {at: f"voter {node_id}" for node_id, at in settings.voters.items()}
    found: wire.DescribeQuorumResponse | None = None
    reached = 0
    for at, name in names.items():
        is_own = at in own or settings.voters.get(config.node_id) == at
        answer = _ask(config, at)
        if isinstance(answer, str):
            if not is_own:  # Whether this node runs is said elsewhere.
                remedy = "start it, or correct the address; docs/cluster.md"
                yield Finding(Level.WARNING, SUBJECT, f"{name} at {at.host}:{at.port}: {answer}", remedy)
            continue
        seconds, described = answer
        reached += 1
        if not is_own:
            yield Finding(Level.OK, SUBJECT, f"{name} at {at.host}:{at.port} answers in {seconds * 1000:.1f} ms")
        found = found or described
    if found is not None:
        yield from _of_leader(config, found, meta)
    elif reached:
        yield Finding(
            Level.WARNING,
            SUBJECT,
            "no controller that answers leads the quorum",
            "start more of the voters: a majority of them elects a leader",
        )


def _ask(config: BrokerConfig, at: Endpoint) -> tuple[float, wire.DescribeQuorumResponse | None] | str:
    """How long a controller takes for an answer, and the quorum where it leads; or why there is none."""
    from kbroker.administration.quorum import partition_of, quorum_request
    from kbroker.assembly.membership.settings import to_controllers
    from kbroker.client.connection import Connection
    from kbroker.client.errors import ClientError
    from kbroker.errors import KafkaError
    from kbroker.security.client.client_security import NO_SECURITY, ClientSecurityError

    try:
        security = to_controllers(config) or NO_SECURITY
        with closing(
            Connection(at.host, at.port, connect_timeout_s=SECONDS, request_timeout_s=SECONDS, security=security)
        ) as asked:
            began = time.monotonic()
            answer: wire.DescribeQuorumResponse = asked.send(quorum_request())
            seconds = time.monotonic() - began
    except (ClientError, ClientSecurityError, OSError) as error:
        return str(error)
    try:
        partition_of(answer)
    except KafkaError:
        return seconds, None
    return seconds, answer


def _of_leader(
    config: BrokerConfig, answer: wire.DescribeQuorumResponse, meta: MetaProperties | None
) -> Iterator[Finding]:
    from kbroker.administration.quorum import end_of_log, partition_of
    from kbroker.types import ZERO_UUID, uuid_to_text

    said = partition_of(answer)
    end = end_of_log(said)
    yield Finding(Level.OK, SUBJECT, f"node {said.leader_id} leads in epoch {said.leader_epoch}")
    voters: Mapping[int, wire.DescribeQuorumResponse.ReplicaState] = {
        each.replica_id: each for each in said.current_voters
    }
    own = voters.get(config.node_id)
    if own is None:
        mend = "kbroker cluster quorum add, or controller.quorum.auto.join.enable=true"
        yield Finding(Level.WARNING, SUBJECT, f"this node is none of the voters {sorted(voters)}", mend)
    elif meta is not None and bytes(own.replica_directory_id) not in (ZERO_UUID, meta.directory_id):
        other = uuid_to_text(bytes(own.replica_directory_id))
        yield Finding(
            Level.WARNING,
            SUBJECT,
            f"the quorum knows this node by the directory {other}, and it has {uuid_to_text(meta.directory_id)}",
            f"kbroker cluster quorum remove -i {config.node_id} -d {other}, then add it again",
        )
    for node_id, each in voters.items():
        yield from _of_voter("this node" if node_id == config.node_id else f"voter {node_id}", each, end)


def _of_voter(name: str, state: wire.DescribeQuorumResponse.ReplicaState, end: int) -> Iterator[Finding]:
    lag = end - state.log_end_offset
    silent = time.time() - state.last_fetch_timestamp / 1000
    mend = "look at its log, its disk and the network between; docs/operations.md"
    if state.log_end_offset < 0:
        yield Finding(Level.WARNING, SUBJECT, f"{name} has not been heard of by the leader", mend)
    elif silent > SILENT_SECONDS:
        yield Finding(Level.WARNING, SUBJECT, f"{name} has not fetched for {silent:.0f} s", mend)
    elif lag > LAG_RECORDS:
        yield Finding(Level.WARNING, SUBJECT, f"{name} lacks {lag} records of the leader's log", mend)
    else:
        yield Finding(Level.OK, SUBJECT, f"{name} lacks {lag} records of the leader's log")
