"""`kbroker kafka-tool NAME`: the tools of Kafka that compose files call in a container, by their own names and options.

The image has a file of each name (`kafka-topics`, `kafka-topics.sh`, …) in the places where the other images have them.
They are for health checks, for containers that make topics, and for a look by hand; Kafka's own tools work against
kbroker with all of their options.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from kbroker.cli.connection import Cluster

F = TypeVar("F", bound=Callable[..., object])

_PAUSE_SECONDS = 0.5
_SHORT = re.compile(r"-([a-z][a-z.-]+)(=.*)?")
_WITHOUT = "is not in this image: Kafka's own tool does it from any other place"


@click.command(
    "kafka-tool",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(name: str, words: tuple[str, ...]) -> int:
    """Run one of Kafka's tools."""
    name = name.removesuffix(".sh")
    tool = TOOLS.get(name)
    if tool is None:
        raise click.ClickException(f"{name} {_WITHOUT}; there are {', '.join(TOOLS)}")
    # Kafka's tools take -topic for --topic, too.
    given = [f"--{found[1]}{found[2] or ''}" if (found := _SHORT.fullmatch(word)) else word for word in words]
    status: object = tool.main(given, prog_name=name, standalone_mode=False)
    return status if isinstance(status, int) else 0


def _connection(function: F) -> F:
    """The options by which Kafka's tools reach a cluster."""
    bootstrap = click.option("--bootstrap-server", "--broker-list", "bootstrap", required=True, metavar="HOST:PORT[,…]")
    config = click.option(
        "--command-config", "--producer.config", "--consumer.config", "config", type=click.Path(exists=True)
    )
    zookeeper = click.option("--zookeeper", expose_value=False, callback=_no_zookeeper, is_eager=True)
    return bootstrap(config(zookeeper(function)))


def _no_zookeeper(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("--zookeeper went with Kafka 3: give --bootstrap-server HOST:PORT", ctx)


def _kbroker(*words: str, bootstrap: str, config: str | None) -> int:
    from kbroker.cli.main import run

    return run([*words, "-b", bootstrap, *(["--command-config", config] if config else [])])


def _pairs(name: str, values: tuple[str, ...]) -> Mapping[str, str]:
    from kbroker.cli.output import parse_pairs

    return parse_pairs(values, name)


@click.command("kafka-topics")
@_connection
@click.option("--list", "what", flag_value="list")
@click.option("--create", "what", flag_value="create")
@click.option("--describe", "what", flag_value="describe")
@click.option("--delete", "what", flag_value="delete")
@click.option("--alter", "what", flag_value="alter")
@click.option("--topic", "topics", multiple=True)
@click.option("--partitions", type=click.IntRange(min=1))
@click.option("--replication-factor", type=click.IntRange(min=1))
@click.option("--config", "settings", multiple=True)
@click.option("--if-not-exists", is_flag=True)
@click.option("--if-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
def kafka_topics(
    bootstrap: str,
    config: str | None,
    what: str | None,
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
) -> int:
    """List, describe, make, alter and delete topics."""
    if what is None:
        raise click.UsageError("give one of --list, --describe, --create, --alter and --delete")
    if what == "list":
        _list_topics(bootstrap, config, exclude_internal)
        return 0
    if what != "describe" and not topics:
        raise click.UsageError("--topic is missing")
    names = [name for each in topics for name in each.split(",") if name]
    words = ["topics", what, *names]
    if what in ("create", "alter"):
        words += [word for each in settings for word in ("--config", each)]
        words += ["--partitions", str(partitions)] if partitions else []
    if what == "create":
        words += ["--replication-factor", str(replication_factor)] if replication_factor else []
        words += ["--if-not-exists"] if if_not_exists else []
    if what == "delete":
        words += ["--if-exists"] if if_exists else []
    return _kbroker(*words, bootstrap=bootstrap, config=config)


def _list_topics(bootstrap: str, config: str | None, exclude_internal: bool) -> None:
    """One name in a line, as scripts expect it."""
    from kbroker.types import is_internal

    with _cluster(bootstrap, config).admin() as admin:
        names = sorted(admin.topics())
    for name in names:
        if not (exclude_internal and is_internal(name)):
            click.echo(name)


def _cluster(bootstrap: str, config: str | None) -> Cluster:
    from kbroker.cli.command_config import read_command_config
    from kbroker.cli.connection import Cluster

    return Cluster(bootstrap, read_command_config(Path(config)) if config else {}, 15.0)


@click.command("kafka-broker-api-versions")
@_connection
def kafka_broker_api_versions(bootstrap: str, config: str | None) -> None:
    """The APIs of each broker, with the versions that it serves."""
    from kbroker.protocol.api import ApiKey

    with _cluster(bootstrap, config).admin() as admin:
        for node_id in admin.cluster.nodes():
            broker = admin.cluster.node(node_id)
            click.echo(f"{broker.address} (id: {node_id}) -> (")
            for key, (first, last) in sorted(broker.versions.items()):
                name = ApiKey(key).name if key in set(ApiKey) else f"UNKNOWN({key})"
                click.echo(f"\t{name}({key}): {first} to {last},")
            click.echo(")")


@click.command("kafka-console-producer")
@_connection
@click.option("--topic", required=True)
@click.option("--property", "properties", multiple=True)
@click.option("--producer-property", "settings", multiple=True)
def kafka_console_producer(
    bootstrap: str, config: str | None, topic: str, properties: tuple[str, ...], settings: tuple[str, ...]
) -> int:
    """Write lines of standard input to a topic."""
    given = _pairs("--property", properties)
    keys = ["--key-separator", given.get("key.separator", "\t")] if given.get("parse.key") == "true" else []
    words = [word for each in settings for word in ("-X", each)]
    return _kbroker("produce", topic, *keys, *words, bootstrap=bootstrap, config=config)


@click.command("kafka-console-consumer")
@_connection
@click.option("--topic", required=True)
@click.option("--from-beginning", is_flag=True)
@click.option("--max-messages", type=click.IntRange(min=1))
@click.option("--timeout-ms", type=click.IntRange(min=1))
@click.option("--group")
@click.option("--partition", type=click.IntRange(min=0))
@click.option("--property", "properties", multiple=True)
def kafka_console_consumer(
    bootstrap: str,
    config: str | None,
    topic: str,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    group: str | None,
    partition: int | None,
    properties: tuple[str, ...],
) -> int:
    """Write a topic's records to standard output."""
    given = _pairs("--property", properties)
    words = ["consume", topic]
    words += ["--from-beginning"] if from_beginning else []
    words += ["--max-messages", str(max_messages)] if max_messages else []
    words += ["--idle-timeout", str(timeout_ms / 1000)] if timeout_ms else []
    words += ["--group", group] if group else []
    words += ["--partition", str(partition)] if partition is not None else []
    words += ["--key-separator", given.get("key.separator", "\t")] if given.get("print.key") == "true" else []
    return _kbroker(*words, bootstrap=bootstrap, config=config)


@click.command("kafka-consumer-groups")
@_connection
@click.option("--list", "what", flag_value="list")
@click.option("--describe", "what", flag_value="describe")
@click.option("--group", "groups", multiple=True)
@click.option("--all-groups", is_flag=True)
def kafka_consumer_groups(
    bootstrap: str, config: str | None, what: str | None, groups: tuple[str, ...], all_groups: bool
) -> int:
    """List and describe groups."""
    if what is None:
        raise click.UsageError(f"what is neither --list nor --describe {_WITHOUT}, as kbroker groups does")
    named = groups if what == "describe" and not all_groups else ()
    return _kbroker("groups", what, *named, bootstrap=bootstrap, config=config)


@click.command("kafka-cluster")
@click.argument("what", type=click.Choice(["cluster-id"]))
@_connection
def kafka_cluster(what: str, bootstrap: str, config: str | None) -> None:
    """The cluster's id."""
    with _cluster(bootstrap, config).admin() as admin:
        click.echo(f"Cluster ID: {admin.cluster.cluster_id()}")


@click.command("kafka-storage", context_settings={"ignore_unknown_options": True})
@click.argument("what", type=click.Choice(["random-uuid", "format"]))
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def kafka_storage(what: str, words: tuple[str, ...]) -> None:
    """A new cluster id; nothing needs to be formatted."""
    from kbroker.types import random_uuid, uuid_to_text

    if what == "random-uuid":
        click.echo(uuid_to_text(random_uuid()))
        return
    if any(word.startswith(("-S", "--add-scram")) for word in words):
        raise click.ClickException("kafka-storage format --add-scram: kbroker format --add-scram makes first users")
    click.echo("kafka-storage format: the broker formats its directories at its start, by CLUSTER_ID", err=True)


@click.command("kafka-server-start", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def kafka_server_start(words: tuple[str, ...]) -> int:
    """Start as the image does, with a file of settings where one is given that is there."""
    from kbroker.cli.main import run

    # The images' own files of settings are made of the environment, and are not here.
    return run(["container", "start", *(word for word in words[:1] if Path(word).is_file())])


@click.group("cub")
def cub() -> None:
    """What Confluent's images wait with."""


@cub.command("kafka-ready")
@click.option("-b", "--bootstrap", "bootstrap", required=True)
@click.option("-c", "--config", "config", type=click.Path(exists=True))
@click.argument("brokers", type=click.IntRange(min=1))
@click.argument("seconds", type=click.IntRange(min=1))
def kafka_ready(bootstrap: str, config: str | None, brokers: int, seconds: int) -> None:
    """Wait until the cluster has so many brokers."""

    def is_ready() -> str:
        with _cluster(bootstrap, config).admin() as admin:
            found = admin.cluster.nodes()
        return "" if len(found) >= brokers else f"there are {len(found)} of {brokers} brokers"

    _wait(is_ready, seconds)


@cub.command("zk-ready")
@click.argument("connect")
@click.argument("seconds", type=click.IntRange(min=1))
def zookeeper_ready(connect: str, seconds: int) -> None:
    """Wait until a ZooKeeper takes connections."""
    host, _, port = connect.partition("/")[0].split(",")[0].rpartition(":")

    def is_ready() -> str:
        with socket.create_connection((host, int(port)), timeout=2):
            return ""

    _wait(is_ready, seconds)


def _wait(why_not: Callable[[], str], seconds: int) -> None:
    """Until nothing is wrong; ClickException with what was wrong last."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while True:
        try:
            wrong = why_not()
        except (click.ClickException, OSError) as error:
            wrong = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if not wrong:
            return
        if time.monotonic() > deadline:
            raise click.ClickException(f"not ready within {seconds} s: {wrong}")
        pause.wait(_PAUSE_SECONDS)


NOT_HERE = ("kafka-acls", "kafka-configs", "kafka-get-offsets", "kafka-metadata-quorum", "kafka-run-class")
"""Tools that scripts call as well: they say that they are not there, where a shell would not find them."""

TOOLS: Mapping[str, click.Command] = {
    "kafka-topics": kafka_topics,
    "kafka-broker-api-versions": kafka_broker_api_versions,
    "kafka-console-producer": kafka_console_producer,
    "kafka-console-consumer": kafka_console_consumer,
    "kafka-consumer-groups": kafka_consumer_groups,
    "kafka-cluster": kafka_cluster,
    "kafka-storage": kafka_storage,
    "kafka-server-start": kafka_server_start,
    "cub": cub,
}
"""By name; a test holds the files of the image against it."""
