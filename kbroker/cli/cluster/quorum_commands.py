"""`kbroker cluster quorum`: describes the quorum of controllers, adds and removes one of them (KIP-595, KIP-853).

As Kafka's `kafka-metadata-quorum.sh` it asks brokers, or with `--controller` the controllers themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import click
from click.core import ParameterSource

from kbroker.administration.quorum import partition_of, quorum_request
from kbroker.cli.connection import Cluster, bootstrap_option, timeout_option
from kbroker.cli.output import json_option, print_json, print_table, time_text
from kbroker.errors import refuse
from kbroker.schemas import wire
from kbroker.types import ZERO_UUID, uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from kbroker.config.listener import Listener
    from kbroker.config.node_settings import NodeSettings
    from kbroker.protocol.messages import Message
    from kbroker.types import JsonObject

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., object])
State = wire.DescribeQuorumResponse.ReplicaState


class Asked(Protocol):
    """A cluster, by its brokers or by its controllers."""

    def send(self, kind: type[A], request: Message) -> A:
        """The answer, of its `kind`."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """How the quorum of a command is reached."""

    cluster: Cluster
    by_controllers: bool

    @contextmanager
    def open(self) -> Iterator[Asked]:
        """A client of it.  ClickException for all that fails while it is used."""
        if not self.by_controllers:
            with self.cluster.admin() as admin:
                yield admin
            return
        from kbroker.cli.refusals import failing_in_words
        from kbroker.client.controllers import Controllers

        self.cluster.check_reachable()
        with failing_in_words(), Controllers(self.cluster.bootstrap, self.cluster.wire_settings()) as controllers:
            yield controllers

    def cluster_id(self, asked: Asked) -> str | None:
        """The cluster's id; None where controllers do not say it (metadata.version below 3.7)."""
        from kbroker.client.controllers import BROKERS, CONTROLLERS

        kind = CONTROLLERS if self.by_controllers else BROKERS
        answer = asked.send(wire.DescribeClusterResponse, wire.DescribeClusterRequest(endpoint_type=kind))
        return None if answer.error_code else answer.cluster_id


def quorum_options(function: F) -> F:
    """Adds `--bootstrap-server`, `--controller` and `--timeout`; the command gets them as `quorum`."""

    @functools.wraps(function)
    def with_quorum(bootstrap: str, controllers: str | None, timeout: float, **others: object) -> object:
        if controllers is None:
            return function(quorum=Quorum(Cluster.at(bootstrap, timeout), by_controllers=False), **others)
        if click.get_current_context().get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE:
            raise click.UsageError("give either --bootstrap-server or --controller")
        return function(quorum=Quorum(Cluster.at(controllers, timeout), by_controllers=True), **others)

    option = click.option(
        "--controller", "controllers", metavar="HOST:PORT[,…]", help="Ask the controllers, and not the brokers."
    )
    return cast("F", bootstrap_option()(option(timeout_option(with_quorum))))


dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.group("quorum")
def command() -> None:
    """Describe the quorum of controllers, add and remove controllers."""


# Describe


@command.command("describe")
@click.option("--status", "only_status", is_flag=True, help="Only the quorum as a whole.")
@click.option("--replication", "only_replicas", is_flag=True, help="Only the nodes that have the metadata log.")
@json_option
@quorum_options
def describe(quorum: Quorum, only_status: bool, only_replicas: bool, as_json: bool) -> None:
    """The leader, and how far each voter and observer has the metadata log."""
    if only_status and only_replicas:
        raise click.UsageError("Only one of --status or --replication should be specified with describe sub-command")
    with quorum.open() as asked:
        answer = asked.send(wire.DescribeQuorumResponse, quorum_request())
        found = described(answer, quorum.cluster_id(asked))
    if only_status:
        del found["replicas"]
    if only_replicas:
        found = {"replicas": found["replicas"]}
    if as_json:
        print_json(found["replicas"] if only_replicas else found)
        return
    if not only_replicas:
        _print_status(found)
    if not only_status:
        _print_replicas(found["replicas"])


def described(answer: wire.DescribeQuorumResponse, cluster_id: str | None) -> JsonObject:
    """An answer as `--json` has it.  KafkaError."""
    found = partition_of(answer)
    voters = {each.replica_id: each for each in found.current_voters}
    leader, slowest = voters.get(found.leader_id), min(found.current_voters, key=lambda each: each.log_end_offset)
    end = slowest.log_end_offset if leader is None else leader.log_end_offset
    endpoints = {node.node_id: [_text(each) for each in node.listeners] for node in answer.nodes}

    def row(state: State, role: str) -> JsonObject:
        return {
            "id": state.replica_id,
            "directory_id": None
            if state.replica_directory_id == ZERO_UUID
            else uuid_to_text(state.replica_directory_id),
            "role": role,
            "end": state.log_end_offset,
            "lag": end - state.log_end_offset,
            "fetched_ms": state.last_fetch_timestamp,
            "caught_up_ms": state.last_caught_up_timestamp,
            "endpoints": endpoints.get(state.replica_id, []) if role != "observer" else [],
        }

    followers = [each for each in found.current_voters if each is not leader]
    return {
        "cluster_id": cluster_id,
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "max_follower_lag": end - slowest.log_end_offset,
        "max_follower_lag_ms": _lag_ms(leader, slowest),
        "replicas": [
            *([] if leader is None else [row(leader, "leader")]),
            *(row(each, "follower") for each in followers),
            *(row(each, "observer") for each in found.observers),
        ],
    }


def _lag_ms(leader: State | None, slowest: State) -> int:
    """As Kafka's tool has it: -1 where it is not known."""
    if leader is slowest:
        return 0
    if leader is None or min(leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp) < 0:
        return -1
    return leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp


def _text(listener: wire.DescribeQuorumResponse.Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


def _print_status(found: JsonObject) -> None:
    click.echo(f"cluster {found['cluster_id'] or 'unknown'}")
    click.echo(f"controller {found['leader']} is active, in epoch {found['epoch']}")
    lag_ms = found["max_follower_lag_ms"]
    behind = "an unknown time" if lag_ms < 0 else f"{lag_ms} ms"
    click.echo(
        f"high watermark {found['high_watermark']}; the slowest voter lacks {found['max_follower_lag']} records, and "
        f"is {behind} behind"
    )


def _print_replicas(replicas: Sequence[JsonObject]) -> None:
    print_table(
        ("NODE", "ROLE", "DIRECTORY", "LOG ENDS", "LAG", "FETCHED", "CAUGHT UP", "ENDPOINTS"),
        [
            (
                each["id"],
                each["role"],
                each["directory_id"],
                each["end"],
                each["lag"],
                time_text(each["fetched_ms"]),
                time_text(each["caught_up_ms"]),
                ", ".join(each["endpoints"]) or None,
            )
            for each in replicas
        ],
    )


# Add and remove


@command.command("add")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting.")
@dry_run_option
@json_option
@quorum_options
def add(quorum: Quorum, properties: str | None, overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Make the controller of these settings a voter; it has to run, and to have the whole metadata log."""
    from kbroker.config import ConfigError
    from kbroker.config.node_settings import NodeSettings

    try:
        node = NodeSettings.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    cluster_id, directory_id = _identity(node)
    listeners = _listeners(node)
    request = wire.AddRaftVoterRequest
    asked_for = request(
        cluster_id=cluster_id,
        timeout_ms=int(quorum.cluster.timeout * 1000),
        voter_id=node.node_id,
        voter_directory_id=directory_id,
        listeners=[request.Listener(name=each.name, host=each.host, port=each.port) for each in listeners],
        ack_when_committed=True,
    )
    if not dry_run:
        with quorum.open() as asked:
            answer = asked.send(wire.AddRaftVoterResponse, asked_for)
            refuse(answer.error_code, answer.error_message)
    endpoints = [str(each) for each in listeners]
    _report("added", node.node_id, directory_id, as_json, is_done=not dry_run, endpoints=endpoints)


@command.command("remove")
@click.option("-i", "--controller-id", required=True, type=click.IntRange(min=0), metavar="ID")
@click.option("-d", "--directory-id", required=True, metavar="ID", help="As `quorum describe` shows it.")
@dry_run_option
@json_option
@quorum_options
def remove(quorum: Quorum, controller_id: int, directory_id: str, dry_run: bool, as_json: bool) -> None:
    """Take the vote from a controller; it may run, or be gone for good."""
    try:
        directory = uuid_from_text(directory_id)
    except ValueError as error:
        raise click.UsageError(f"--directory-id: {error}") from None
    if not dry_run:
        request = wire.RemoveRaftVoterRequest(cluster_id=None, voter_id=controller_id, voter_directory_id=directory)
        with quorum.open() as asked:
            answer = asked.send(wire.RemoveRaftVoterResponse, request)
            refuse(answer.error_code, answer.error_message)
    _report("removed", controller_id, directory, as_json, is_done=not dry_run)


def _identity(node: NodeSettings) -> tuple[str, bytes]:
    """The cluster's id and that of the metadata log's directory.  ClickException, in the words of Kafka's tool."""
    from kbroker.storage.directories.log_dirs import META_PROPERTIES, LogDirError, decode_meta_properties

    if not node.is_controller:
        raise click.ClickException(
            "process.roles did not contain 'controller' in configuration file. Is this a valid controller "
            "configuration file?"
        )
    path = Path(node.metadata_dir, META_PROPERTIES)
    try:
        meta = decode_meta_properties(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise click.ClickException(
            f"Unable to read meta.properties from {node.metadata_dir}: `kbroker format --no-initial-controllers` makes "
            "the directories of a controller that joins a cluster"
        ) from None
    except LogDirError as error:
        raise click.ClickException(str(error)) from None
    if meta.is_id_drawn:
        raise click.ClickException(f"No directory id found in {node.metadata_dir}")
    return meta.cluster_id, meta.directory_id


def _listeners(node: NodeSettings) -> list[Listener]:
    """Where the controller is found.  ClickException, in the words of Kafka's tool."""
    names = [name.upper() for name in node.get("controller.listener.names")]
    if not names:
        raise click.ClickException(
            "controller.listener.names was not found. Is this a valid controller configuration file?"
        )
    found = node.quorum_listeners
    for name in names:
        if all(each.name != name for each in found):
            raise click.ClickException(f"Cannot find information about controller listener name: {name}")
    return found


def _report(
    done: str, node_id: int, directory_id: bytes, as_json: bool, *, is_done: bool, endpoints: Sequence[str] = ()
) -> None:
    if as_json:
        row: JsonObject = {"id": node_id, "directory_id": uuid_to_text(directory_id), done: is_done}
        print_json({**row, "endpoints": list(endpoints)} if endpoints else row)
        return
    where = f" at {', '.join(endpoints)}" if endpoints else ""
    would = "" if is_done else "would be "
    click.echo(f"controller {node_id} with directory id {uuid_to_text(directory_id)}{where}: {would}{done}")
