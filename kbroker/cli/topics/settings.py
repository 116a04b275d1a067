"""`kbroker settings`: show and change the settings of running brokers, of any Kafka (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kbroker.administration.configs import ALL_BROKERS, Kind, Source, alter_configs, describe_configs
from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, parse_pairs, print_lines, print_rows
from kbroker.config import broker_config_rows, topic_config_rows
from kbroker.config.origin import origin_in
from kbroker.errors import KafkaError
from kbroker.nearest import unknown_hint
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin

SOURCES: dict[int, str] = {
    Source.TOPIC: "topic",
    Source.BROKER: "this broker",
    Source.ALL_BROKERS: "all brokers",
    Source.AT_START: "set at start",
    Source.DEFAULT: "default",
}


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
@cluster_options
@json_option
def show_settings(
    cluster: Cluster, names: tuple[str, ...], broker: int | None, topic: str | None, changed: bool, as_json: bool
) -> None:
    """Show the settings in force on a broker or for a topic, and where each comes from.  All when none is named.

    A kbroker names file and line, environment variable or --override for what was set at its start.
    """
    with cluster.admin() as admin:
        if topic is not None:
            rows = _describe(admin, Kind.TOPIC, topic, names)
        else:
            rows = _describe(admin, Kind.BROKER, str(_broker(admin) if broker is None else broker), names)
    unknown = sorted(set(names) - {row["name"] for row in rows})
    if unknown:
        known = broker_config_rows() if topic is None else topic_config_rows()
        near = unknown_hint(unknown, (row.name for row in known)) if len(unknown) == 1 else ""
        what = "the broker" if topic is None else "a topic"
        raise click.ClickException(f"{what} has no setting {', '.join(unknown)}{near}")
    rows = [row for row in rows if not changed or row["origin"] or row["source"] != SOURCES[Source.DEFAULT]]
    print_rows(rows, ("NAME", "VALUE", "FROM"), as_json, _cells)


def _cells(row: JsonObject) -> tuple[object, ...]:
    return row["name"], "(hidden)" if row["sensitive"] else row["value"], row["origin"] or row["source"]


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="[default: all brokers]")
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@cluster_options
@json_option
def set_settings(
    cluster: Cluster, pairs: tuple[str, ...], broker: int | None, validate_only: bool, as_json: bool
) -> None:
    """Change settings while brokers run; they are kept over restarts."""
    settings = parse_pairs(pairs, "set")
    _alter(cluster, broker, settings, (), validate_only)
    result = "valid" if validate_only else "set"
    rows = [{"name": key, "value": value, "broker": broker, "result": result} for key, value in settings.items()]
    print_lines(rows, lambda row: f"{row['name']}={row['value']}: {row['result']} for {_target(broker)}", as_json)


@command.command("unset")
@click.argument("names", nargs=-1, required=True)
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="[default: all brokers]")
@cluster_options
@json_option
def unset_settings(cluster: Cluster, names: tuple[str, ...], broker: int | None, as_json: bool) -> None:
    """Go back to what server.properties or the default says."""
    _alter(cluster, broker, {}, names, False)
    rows = [{"name": name, "broker": broker, "result": "unset"} for name in names]
    print_lines(rows, lambda row: f"{row['name']}: unset for {_target(broker)}", as_json)


def _target(broker: int | None) -> str:
    return "all brokers" if broker is None else f"broker {broker}"


def _broker(admin: ClusterAdmin) -> int:
    """The only broker of the cluster."""
    brokers = admin.cluster.nodes()
    if len(brokers) != 1:
        raise click.UsageError(f"there are several brokers, {brokers}: choose one with --broker")
    return brokers[0]


def _describe(admin: ClusterAdmin, kind: Kind, name: str, names: Sequence[str]) -> list[JsonObject]:
    try:
        found = admin.do(describe_configs(admin, kind, [name], names, documentation=True))
    except KafkaError as error:
        hint = unknown_hint([name], admin.topics()) if kind is Kind.TOPIC else ""
        raise KafkaError.of(error.code, f"there is no topic {name}{hint}" if hint else error.message) from None
    return [
        {
            "name": config.name,
            "value": config.value,
            "source": SOURCES.get(config.config_source, str(config.config_source)),
            "origin": origin_in(config.documentation),
            "sensitive": config.is_sensitive,
            "read_only": config.read_only,
        }
        for config in found[name]
    ]


def _alter(
    cluster: Cluster, broker: int | None, given: Mapping[str, str], unset: Sequence[str], validate_only: bool
) -> None:
    name = ALL_BROKERS if broker is None else str(broker)
    with cluster.admin() as admin:
        try:
            admin.do(alter_configs(admin, Kind.BROKER, name, given, unset, validate_only=validate_only))
        except KafkaError as error:
            hint = unknown_hint([*given, *unset], (row.name for row in broker_config_rows()))
            raise KafkaError.of(error.code, f"{error}{hint}") from None
