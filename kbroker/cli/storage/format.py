"""`kbroker format`: binds data directories to a cluster before the first start.

A broker binds an empty directory to a new cluster by itself; there it is for a chosen cluster id, or to prepare disks
ahead.  A controller needs it: its directories say with which voters and features the cluster begins (`format_node`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kbroker.cli.output import json_option, print_json
from kbroker.cli.storage.format_options import Asked, already_formatted, quorum_options
from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.node_settings import NodeSettings
from kbroker.types import random_uuid, uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from kbroker.metadata.security_image import ScramCredential, ScramKey


@click.command("format")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting.")
@click.option(
    "-t", "--cluster-id", metavar="ID", help="22 characters, as `kbroker format` prints.  [default: a random one]"
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave directories that are formatted as they are.")
@quorum_options
@click.option(
    "-S",
    "--add-scram",
    "users",
    multiple=True,
    metavar="USER",
    help="A first user of SCRAM: 'SCRAM-SHA-256=[name=alice,password=…]', as Kafka's storage tool takes it.",
)
@json_option
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    cluster_id: str | None,
    ignore_formatted: bool,
    users: tuple[str, ...],
    asked: Asked,
    as_json: bool,
) -> None:
    """Write meta.properties into the directories of log.dirs, and the first users.

    For a controller (process.roles) also what its cluster begins with: the voters, which --standalone,
    --initial-controllers or controller.quorum.voters name, and the levels of features.
    """
    credentials = _credentials(users)
    if cluster_id is not None:
        try:
            uuid_from_text(cluster_id)
        except ValueError as error:
            raise click.UsageError(f"--cluster-id: {error}") from None
    try:
        node = NodeSettings.load(properties, overrides)
        if asked.has_any and not node.roles:
            raise ConfigError("process.roles is not set, and a node without it is its whole cluster by itself")
        is_of_quorum = node.is_controller or asked.has_any
        config = None if is_of_quorum else BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    if is_of_quorum:
        from kbroker.cli.storage.format_node import format_node, print_formatted

        done = format_node(node, asked, cluster_id, credentials, ignore_formatted=ignore_formatted)
        return print_json(done) if as_json else print_formatted(done)
    assert config is not None
    chosen, directories = format_directories(config, cluster_id, credentials, ignore_formatted=ignore_formatted)
    return _report(chosen, config, directories, as_json)


def format_directories(
    config: BrokerConfig,
    cluster_id: str | None,
    credentials: Mapping[ScramKey, ScramCredential],
    *,
    ignore_formatted: bool,
) -> tuple[str, list[tuple[str, bool]]]:
    """Bind the directories of log.dirs to a cluster, and store first users; (the cluster's id, (path, whether it was
    formatted now) of each).  ClickException."""
    from kbroker.cluster.workers.worker_slot import WorkerSlotError
    from kbroker.storage.directories.log_dirs import LogDirError, open_directories
    from kbroker.storage.files.filesystem import FileSystem

    try:
        placed = _directories_by_node(config)
        directories = open_directories(FileSystem(), [path for paths in placed.values() for path in paths])
        nodes = iter([node_id for node_id, paths in placed.items() for _ in paths])
    except (LogDirError, WorkerSlotError) as error:
        raise click.ClickException(str(error)) from None
    try:
        known = [directory for directory in directories if directory.meta is not None]
        if known and not ignore_formatted:
            raise click.ClickException(already_formatted(known[0].path))
        chosen = cluster_id or next((d.meta.cluster_id for d in known if d.meta is not None), None)
        chosen = chosen or uuid_to_text(random_uuid())
        for directory in directories:
            directory.bind(chosen, next(nodes))
        if credentials:
            _store(config, chosen, credentials)
    except LogDirError as error:
        raise click.ClickException(str(error)) from None
    finally:
        for directory in directories:
            directory.release()
    return chosen, [(each.path, each not in known) for each in directories]


def _credentials(users: tuple[str, ...]) -> Mapping[ScramKey, ScramCredential]:
    from kbroker.security.scram_arguments import ScramArgumentError, parse_scram_arguments

    try:
        return parse_scram_arguments(users)
    except ScramArgumentError as error:
        raise click.UsageError(f"--add-scram: {error}") from None


def _store(config: BrokerConfig, cluster_id: str, credentials: Mapping[ScramKey, ScramCredential]) -> None:
    """Put the users into a new metadata store."""
    from kbroker.metadata.security_image import SecurityDelta
    from kbroker.startup.new_store import StoreContents, StoreThereError, write_store
    from kbroker.storage.files.filesystem import FileSystem

    if config.get("zookeeper.connect"):
        raise click.ClickException(
            "--add-scram: users of a cluster with ZooKeeper are there: add them with kafka-configs or kbroker users"
        )
    contents = StoreContents([], -1, security=SecurityDelta(scram=credentials))
    try:
        write_store(FileSystem(), config.log_dirs[0], cluster_id, contents)
    except StoreThereError as error:
        raise click.ClickException(f"--add-scram: {error}") from None


def _directories_by_node(config: BrokerConfig) -> dict[int, list[str]]:
    """The log directories of this broker, and of the host's other workers where the settings ask for some."""
    from kbroker.cluster.workers.worker_slot import worker_count, worker_settings

    placed = {config.node_id: config.log_dirs}
    count = worker_count(config)
    for number in range(2, count + 1):
        settings = worker_settings(config, number, count)
        placed[int(settings["node.id"])] = settings["log.dirs"].split(",")
    return placed


def _report(cluster_id: str, config: BrokerConfig, directories: list[tuple[str, bool]], as_json: bool) -> None:
    if as_json:
        rows = [{"path": path, "formatted_now": now} for path, now in directories]
        print_json({"cluster_id": cluster_id, "node_id": config.node_id, "directories": rows})
        return
    for path, now in directories:
        done = "formatted" if now else "left as it was"
        click.echo(f"{path}: {done}  cluster {cluster_id}  node {config.node_id}")
