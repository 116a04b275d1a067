"""`kbroker settings`: show and change the settings of running brokers, of any Kafka (KIP-226).

It asks by Kafka's protocol, because librdkafka's client cannot name "all brokers".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.connection import bootstrap_option, connected, refuse, timeout_option
from kbroker.cli.output import json_option, parse_pairs, print_json, print_table
from kbroker.config import broker_config_rows, topic_config_rows
from kbroker.config.origin import origin_in
from kbroker.nearest import unknown_hint
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from kbroker.client.connection import Connection

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "set at start", 5: "default"}


@click.group("settings")
def command() -> None:
    """Show and change the settings of running brokers."""


@command.command("show")
@click.argument("names", nargs=-1)
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="[default: the only one]")
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=completion.topics,
    help="A topic's settings, those that it takes from the broker included.",
)
@click.option("--changed", is_flag=True, help="Only those that are not at their defaults.")
@bootstrap_option()
@timeout_option
@json_option
def show_settings(
    names: tuple[str, ...],
    broker: int | None,
    topic: str | None,
    changed: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Show the settings in force on a broker or for a topic, and where each comes from.  All when none is named.

    A kbroker names file and line, environment variable or --override for what was set at its start.
    """
    with connected(bootstrap, timeout) as connection:
        if topic is not None:
            rows = _describe(connection, TOPIC, topic, names)
        else:
            rows = _describe(connection, BROKER, str(_broker(connection) if broker is None else broker), names)
    unknown = sorted(set(names) - {row["name"] for row in rows})
    if unknown:
        known = broker_config_rows() if topic is None else topic_config_rows()
        near = unknown_hint(unknown, (row.name for row in known)) if len(unknown) == 1 else ""
        what = "the broker" if topic is None else "a topic"
        raise click.ClickException(f"{what} has no setting {', '.join(unknown)}{near}")
    rows = [row for row in rows if not changed or row["origin"] or row["source"] != SOURCES[5]]
    if as_json:
        print_json(rows)
        return
    values = [
        (row["name"], "(hidden)" if row["sensitive"] else row["value"], row["origin"] or row["source"]) for row in rows
    ]
    print_table(("NAME", "VALUE", "FROM"), values)


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="[default: all brokers]")
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@bootstrap_option()
@timeout_option
@json_option
def set_settings(
    pairs: tuple[str, ...], broker: int | None, validate_only: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Change settings while brokers run; they are kept over restarts."""
    settings = parse_pairs(pairs, "set")
    _alter(bootstrap, timeout, broker, [(key, SET, value) for key, value in settings.items()], validate_only)
    result = "valid" if validate_only else "set"
    if as_json:
        print_json(
            [{"name": key, "value": value, "broker": broker, "result": result} for key, value in settings.items()]
        )
        return
    for key, value in settings.items():
        click.echo(f"{key}={value}: {result} for {_target(broker)}")


@command.command("unset")
@click.argument("names", nargs=-1, required=True)
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="[default: all brokers]")
@bootstrap_option()
@timeout_option
@json_option
def unset_settings(names: tuple[str, ...], broker: int | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Go back to what server.properties or the default says."""
    _alter(bootstrap, timeout, broker, [(name, DELETE, None) for name in names], False)
    if as_json:
        print_json([{"name": name, "broker": broker, "result": "unset"} for name in names])
        return
    for name in names:
        click.echo(f"{name}: unset for {_target(broker)}")


def _target(broker: int | None) -> str:
    return "all brokers" if broker is None else f"broker {broker}"


def _broker(connection: Connection) -> int:
    """The only broker of the cluster."""
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    request = request_message(ApiKey.METADATA)(topics=[], allow_auto_topic_creation=False)
    brokers = sorted(int(broker.node_id) for broker in connection.send(request).brokers)
    if len(brokers) != 1:
        raise click.UsageError(f"there are several brokers, {brokers}: choose one with --broker")
    return brokers[0]


def _describe(connection: Connection, kind: int, name: str, names: tuple[str, ...]) -> list[JsonObject]:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message, wire

    resource = wire.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(names) or None
    )
    (result,) = connection.send(
        request_message(ApiKey.DESCRIBE_CONFIGS)(resources=[resource], include_documentation=True)
    ).results
    if kind == TOPIC and result.error_code:
        topics = connection.send(request_message(ApiKey.METADATA)(topics=None, allow_auto_topic_creation=False)).topics
        hint = unknown_hint([name], (topic.name for topic in topics))
        refuse(result.error_code, f"there is no topic {name}{hint}" if hint else result.error_message)
    refuse(result.error_code, result.error_message)
    return [
        {
            "name": config.name,
            "value": config.value,
            "source": SOURCES.get(config.config_source, str(config.config_source)),
            "origin": origin_in(config.documentation),
            "sensitive": config.is_sensitive,
            "read_only": config.read_only,
        }
        for config in sorted(result.configs, key=lambda config: str(config.name))
    ]


def _alter(
    bootstrap: str,
    timeout: float,
    broker: int | None,
    operations: list[tuple[str, int, str | None]],
    validate_only: bool,
) -> None:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message, wire

    request = wire.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="" if broker is None else str(broker),
        configs=[
            request.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in operations
        ],
    )
    with connected(bootstrap, timeout) as connection:
        answer = connection.send(
            request_message(ApiKey.INCREMENTAL_ALTER_CONFIGS)(resources=[resource], validate_only=validate_only)
        )
    (result,) = answer.responses
    hint = unknown_hint((name for name, _, _ in operations), (row.name for row in broker_config_rows()))
    refuse(result.error_code, f"{result.error_message or ''}{hint}")
