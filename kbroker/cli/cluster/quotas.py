"""`kbroker quotas`: list, set and remove the quotas of users, client ids and addresses, of any Kafka (KIP-546).

It asks by Kafka's protocol, because librdkafka's client does not know these requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import click

from kbroker.cli.connection import bootstrap_option, connected, refuse, timeout_option
from kbroker.cli.output import json_option, parse_pairs, print_json, print_table
from kbroker.nearest import unknown_hint
from kbroker.types import JsonObject, Options

if TYPE_CHECKING:
    from kbroker.client.connection import Connection

EXACT, DEFAULT = 0, 1
TYPES = ("user", "client-id", "ip")

Entity = dict[str, str | None]
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
    entity: Entity = {}
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
@bootstrap_option()
@timeout_option
@json_option
def list_quotas(bootstrap: str, timeout: float, as_json: bool, strict: bool, **options: object) -> None:
    """List quotas; all, or those of the entities that match."""
    entity = _entity(options)
    with connected(bootstrap, timeout) as connection:
        found = _describe(connection, entity, strict and bool(entity))
    if as_json:
        print_json(found)
        return
    rows = [(_named(each["entity"]), key, _shown(value)) for each in found for key, value in each["quotas"].items()]
    print_table(("ENTITY", "QUOTA", "PER SECOND"), rows)


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@entity_options
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@bootstrap_option()
@timeout_option
@json_option
def set_quotas(
    pairs: tuple[str, ...], bootstrap: str, timeout: float, validate_only: bool, as_json: bool, **options: object
) -> None:
    """Set quotas of an entity: a user, a client id, both, or an address."""
    entity = _entity(options)
    values = {key: _number(key, text) for key, text in parse_pairs(pairs, "set").items()}
    _alter(bootstrap, timeout, entity, dict(values), validate_only)
    result = "valid" if validate_only else "set"
    if as_json:
        print_json(
            [{"entity": entity, "quota": key, "value": value, "result": result} for key, value in values.items()]
        )
        return
    for key, value in values.items():
        click.echo(f"{key}={_shown(value)}: {result} for {_named(entity)}")


@command.command("remove")
@click.argument("keys", nargs=-1, required=True, metavar="QUOTA...")
@entity_options
@bootstrap_option()
@timeout_option
@json_option
def remove_quotas(keys: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool, **options: object) -> None:
    """Remove quotas of an entity."""
    entity = _entity(options)
    with connected(bootstrap, timeout) as connection:
        known = {key for each in _describe(connection, entity, True) for key in each["quotas"]} if entity else set()
    missing = [key for key in keys if key not in known]
    if missing and entity:
        raise click.ClickException(f"{_named(entity)} has no quota {', '.join(missing)}")
    _alter(bootstrap, timeout, entity, dict.fromkeys(keys), False)
    if as_json:
        print_json([{"entity": entity, "quota": key, "result": "removed"} for key in keys])
        return
    for key in keys:
        click.echo(f"{key}: removed for {_named(entity)}")


def _shown(value: float) -> str:
    return str(int(value)) if value == value and abs(value) < 2**63 and value == int(value) else str(value)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key}={text}: not a number") from None


def _describe(connection: Connection, entity: Entity, strict: bool) -> list[JsonObject]:
    from kbroker.schemas import wire

    request = wire.DescribeClientQuotasRequest
    components = [
        request.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    answer = connection.send(request(components=components, strict=strict))
    refuse(answer.error_code, answer.error_message)
    found = [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        }
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda each: _named(each["entity"]))


def _alter(
    bootstrap: str, timeout: float, entity: Entity, values: dict[str, float | None], validate_only: bool
) -> None:
    from kbroker.schemas import wire

    if not entity:
        raise click.UsageError("name whose quotas: --user, --client-id, both, or --ip, or one of their defaults")
    request = wire.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            request.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )
    with connected(bootstrap, timeout) as connection:
        answer = connection.send(request(entries=[entry], validate_only=validate_only))
    for result in answer.entries:
        refuse(result.error_code, f"{result.error_message or ''}{unknown_hint(values, QUOTAS)}")
