"""`kbroker quotas`: list, set and remove the quotas of users, client ids and addresses, of any Kafka (KIP-546)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import click

from kbroker.administration.quotas import TYPES, Entity, alter_quotas, describe_quotas
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, parse_pairs, print_json, print_lines, print_table
from kbroker.errors import KafkaError
from kbroker.nearest import unknown_hint
from kbroker.types import JsonObject, Options

F = TypeVar("F", bound=Callable[..., object])


def entity_options(function: F) -> F:
    """Adds `--user`, `--user-default` and the same for client ids and addresses; see `_entity`."""
    decorated: Callable[..., object] = function
    for kind in reversed(TYPES):
        decorated = click.option(f"--{kind}-default", is_flag=True, help=f"Each {kind} without its own.")(decorated)
        decorated = click.option(f"--{kind}", metavar="NAME", help=f"This {kind}.")(decorated)
    return cast("F", decorated)


def _entity(options: Options) -> Entity:
    """The entity that the options name, a default as None; takes them out of `options`."""
    entity: dict[str, str | None] = {}
    for kind in TYPES:
        key = kind.replace("-", "_")
        name, default = options.pop(key), options.pop(f"{key}_default")
        if name is not None and default:
            raise click.UsageError(f"--{kind} and --{kind}-default exclude each other")
        if name is not None or default:
            entity[kind] = name
    return entity


QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind} {name if name is not None else '<default>'}" for kind, name in entity.items())


@click.group("quotas")
def command() -> None:
    """List, set and remove the quotas of users, client ids and addresses.

    Settings: producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage (of one processor),
    controller_mutation_rate (partitions a second); of addresses connection_creation_rate (connections a second).
    """


@command.command("list")
@entity_options
@click.option("--strict", is_flag=True, help="Only entities of no other types than those named.")
@cluster_options
@json_option
def list_quotas(cluster: Cluster, as_json: bool, strict: bool, **options: object) -> None:
    """List quotas; all, or those of the entities that match."""
    entity = _entity(options)
    found = _describe(cluster, entity, strict=strict and bool(entity))
    if as_json:
        print_json(found)
        return
    rows = [(_named(each["entity"]), key, _shown(value)) for each in found for key, value in each["quotas"].items()]
    print_table(("ENTITY", "QUOTA", "PER SECOND"), rows)


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@entity_options
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@cluster_options
@json_option
def set_quotas(cluster: Cluster, pairs: tuple[str, ...], validate_only: bool, as_json: bool, **options: object) -> None:
    """Set quotas of an entity: a user, a client id, both, or an address."""
    entity = _entity(options)
    values = {key: _number(key, text) for key, text in parse_pairs(pairs, "set").items()}
    _alter(cluster, entity, dict(values), validate_only=validate_only)
    result = "valid" if validate_only else "set"
    rows = [{"entity": entity, "quota": key, "value": value, "result": result} for key, value in values.items()]
    text = f"{result} for {_named(entity)}"
    print_lines(rows, lambda row: f"{row['quota']}={_shown(row['value'])}: {text}", as_json)


@command.command("remove")
@click.argument("keys", nargs=-1, required=True, metavar="QUOTA...")
@entity_options
@cluster_options
@json_option
def remove_quotas(cluster: Cluster, keys: tuple[str, ...], as_json: bool, **options: object) -> None:
    """Remove quotas of an entity."""
    entity = _entity(options)
    known = {key for each in _describe(cluster, entity, strict=True) for key in each["quotas"]} if entity else set()
    missing = [key for key in keys if key not in known]
    if missing and entity:
        raise click.ClickException(f"{_named(entity)} has no quota {', '.join(missing)}")
    _alter(cluster, entity, dict.fromkeys(keys), validate_only=False)
    rows = [{"entity": entity, "quota": key, "result": "removed"} for key in keys]
    print_lines(rows, lambda row: f"{row['quota']}: removed for {_named(entity)}", as_json)


def _shown(value: float) -> str:
    return str(int(value)) if value == value and abs(value) < 2**63 and value == int(value) else str(value)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key}={text}: not a number") from None


def _describe(cluster: Cluster, entity: Entity, *, strict: bool) -> list[JsonObject]:
    with cluster.admin() as admin:
        entries = admin.do(describe_quotas(admin, entity, strict=strict))
    found = [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        }
        for entry in entries
    ]
    return sorted(found, key=lambda each: _named(each["entity"]))


def _alter(cluster: Cluster, entity: Entity, values: dict[str, float | None], *, validate_only: bool) -> None:
    if not entity:
        raise click.UsageError("name whose quotas: --user, --client-id, both, or --ip, or one of their defaults")
    with cluster.admin() as admin:
        try:
            admin.do(alter_quotas(admin, entity, values, validate_only=validate_only))
        except KafkaError as error:
            raise KafkaError.of(error.code, f"{error}{unknown_hint(values, QUOTAS)}") from None
