"""`kbroker acls`: list, add and remove the ACLs of any Kafka, with the words of `kafka-acls`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import NamedTuple, TypeVar, cast

import click

from kbroker.administration.acls import create_acls, delete_acls, describe_acls
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_rows
from kbroker.errors import refuse
from kbroker.metadata.security_image import Acl
from kbroker.nearest import unknown_hint
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import (
    ALL,
    ANY,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    UNKNOWN,
    PatternType,
    Permission,
    number_of,
)
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.types import Options

F = TypeVar("F", bound=Callable[..., object])
EVERYWHERE = "*"
_KINDS = {
    "topic": ResourceKind.TOPIC,
    "group": ResourceKind.GROUP,
    "transactional_id": ResourceKind.TRANSACTIONAL_ID,
    "delegation_token": ResourceKind.DELEGATION_TOKEN,
    "user_principal": ResourceKind.USER,
}
_WORDS = tuple(name for number, name in OPERATIONS.items() if number > ANY)
_OF_PRODUCERS = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_OF_TRANSACTIONS = (Operation.WRITE, Operation.DESCRIBE)
_OF_CONSUMERS = (Operation.READ, Operation.DESCRIBE)


class Resource(NamedTuple):
    """What rules are about."""

    kind: int
    name: str
    pattern: int


def resource_options(function: F) -> F:
    """Adds `--topic`, `--group` and so on, each of which may be given several times, and `--cluster`."""
    of_cluster = click.option("--cluster", "of_cluster", is_flag=True, help="The cluster itself.")
    decorated: Callable[..., object] = of_cluster(function)
    for name in reversed(_KINDS):
        words = name.replace("_", "-")
        shown = "User:NAME" if name == "user_principal" else "NAME"
        help_text = f"This {words.replace('-', ' ')}; * for all."
        decorated = click.option(f"--{words}", name, multiple=True, metavar=shown, help=help_text)(decorated)
    return cast("F", decorated)


def rule_options(function: F) -> F:
    """Adds who is allowed or denied what."""
    decorated: Callable[..., object] = function
    for name, metavar, text in reversed(
        (
            ("--allow-principal", "User:NAME", "Who is allowed; User:* is everybody."),
            ("--deny-principal", "User:NAME", "Who is denied."),
            ("--allow-host", "ADDRESS", "Where they are allowed; everywhere unless said."),
            ("--deny-host", "ADDRESS", "Where they are denied; everywhere unless said."),
            ("--operation", "NAME", f"{', '.join(word.lower() for word in _WORDS)}; all unless said."),
        )
    ):
        decorated = click.option(name, multiple=True, metavar=metavar, help=text)(decorated)
    for name, text in (
        ("--consumer", "What a consumer of the topics in the group needs."),
        ("--idempotent", "With --producer: idempotence, for brokers before 2.8."),
        ("--producer", "What a producer to the topics needs, and its transactional ids."),
    ):
        decorated = click.option(name, is_flag=True, help=text)(decorated)
    return cast("F", decorated)


def pattern_option(*words: str) -> Callable[[F], F]:
    """Adds `--resource-pattern-type`."""
    return click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice(words, case_sensitive=False),
        default=words[0],
        show_default=True,
        help="How the names are meant.",
    )


@click.group("acls")
def command() -> None:
    """List, add and remove ACLs: who may do what to which topics, groups and other resources."""


@command.command("list")
@resource_options
@pattern_option("any", "match", "literal", "prefixed")
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Rules for these alone.")
@cluster_options
@json_option
def list_acls(cluster: Cluster, as_json: bool, pattern: str, principals: tuple[str, ...], **options: object) -> None:
    """List ACLs; all, or those of the resources and principals named.

    `--resource-pattern-type match` shows every rule that concerns a resource of that name.
    """
    resources = _resources(options, number_of(PATTERNS, pattern)) or [None]
    filters = [_filter(resource, principal=who) for resource, who in product(resources, principals or (None,))]
    with cluster.admin() as admin:
        found = {acl for each in filters for acl in admin.do(describe_acls(admin, each))}
    _print(sorted(found), as_json)


@command.command("add")
@resource_options
@pattern_option("literal", "prefixed")
@rule_options
@cluster_options
@json_option
def add_acls(cluster: Cluster, as_json: bool, pattern: str, **options: object) -> None:
    """Add ACLs to the resources named, for each principal, host and operation.

    \b
    kbroker acls add --topic t --group g --consumer --allow-principal User:alice
    """
    acls = list(dict.fromkeys(_rules(options, number_of(PATTERNS, pattern))))
    if not acls:
        raise click.UsageError("name who is allowed or denied: --allow-principal or --deny-principal")
    with cluster.admin() as admin:
        for acl, row in zip(acls, admin.do(create_acls(admin, acls)), strict=True):
            if row.error_code:
                refuse(row.error_code, f"{_described_resource(acl)}: {row.error_message or ''}")
    _print(acls, as_json)


@command.command("remove")
@resource_options
@pattern_option("literal", "prefixed", "any", "match")
@rule_options
@cluster_options
@json_option
def remove_acls(cluster: Cluster, as_json: bool, pattern: str, **options: object) -> None:
    """Remove ACLs: those that `add` with the same words adds or, without a principal, all of the resources named."""
    number = number_of(PATTERNS, pattern)
    rules = list(dict.fromkeys(_rules(options, number)))
    if rules:
        filters = [AclFilter(*acl) for acl in rules]
    else:
        filters = [_filter(resource) for resource in _resources(options, number)]
    if not filters:
        raise click.UsageError("name what the rules are about: --topic, --group, --cluster, …")
    with cluster.admin() as admin:
        _print(sorted(admin.do(delete_acls(admin, filters))), as_json)


def _resources(options: Options, pattern: int) -> list[Resource | None]:
    found: list[Resource | None] = []
    for name, kind in _KINDS.items():
        found += [Resource(kind, each, pattern) for each in options[name]]
    if options["of_cluster"]:
        found.append(Resource(ResourceKind.CLUSTER, CLUSTER_NAME, min(pattern, PatternType.LITERAL)))
    return found


def _rules(options: Options, pattern: int) -> Iterator[Acl]:
    resources = [each for each in _resources(options, pattern) if each is not None]
    wanted: list[tuple[Resource, int]] = []
    if options["producer"] or options["consumer"]:
        if options["operation"]:
            raise click.UsageError("--producer and --consumer name operations themselves: leave --operation out")
        wanted += _conveniences(options, resources)
    elif options["idempotent"]:
        raise click.UsageError("--idempotent goes with --producer")
    else:
        operations = [_operation(each) for each in options["operation"]] or [ALL]
        wanted += product(resources, operations)
    principals = [(each, Permission.ALLOW) for each in options["allow_principal"]]
    principals += [(each, Permission.DENY) for each in options["deny_principal"]]
    for who, _ in principals:
        if ":" not in who:
            raise click.UsageError(f"{who}: a principal is written User:{who}")
    if principals and not wanted:
        raise click.UsageError("name what the rules are about: --topic, --group, --cluster, …")
    for (resource, operation), (who, permission) in product(wanted, principals):
        hosts = options["allow_host"] if permission is Permission.ALLOW else options["deny_host"]
        for host in hosts or (EVERYWHERE,):
            yield Acl(resource.kind, resource.name, resource.pattern, who, host, operation, permission)


def _conveniences(options: Options, resources: list[Resource]) -> Iterator[tuple[Resource, int]]:
    kinds = {each.kind for each in resources}
    if ResourceKind.TOPIC not in kinds:
        raise click.UsageError("--producer and --consumer need a --topic")
    if options["consumer"] and ResourceKind.GROUP not in kinds:
        raise click.UsageError("--consumer needs a --group")
    for each in resources:
        if each.kind == ResourceKind.TOPIC:
            yield from ((each, one) for one in _OF_PRODUCERS if options["producer"])
            yield from ((each, one) for one in _OF_CONSUMERS if options["consumer"])
        elif each.kind == ResourceKind.TRANSACTIONAL_ID and options["producer"]:
            yield from ((each, one) for one in _OF_TRANSACTIONS)
        elif each.kind == ResourceKind.GROUP and options["consumer"]:
            yield each, Operation.READ
    if options["idempotent"] and options["producer"]:
        yield Resource(ResourceKind.CLUSTER, CLUSTER_NAME, PatternType.LITERAL), Operation.IDEMPOTENT_WRITE


def _operation(word: str) -> int:
    number = number_of(OPERATIONS, word.replace("-", "_"))
    if number in (UNKNOWN, ANY):
        raise click.UsageError(f"{word} is no operation{unknown_hint([word.upper()], _WORDS)}")
    return number


def _filter(resource: Resource | None, principal: str | None = None) -> AclFilter:
    if resource is None:
        return AclFilter(principal=principal)
    return AclFilter(resource.kind, resource.name, resource.pattern, principal)


def _described_resource(acl: Acl) -> str:
    return f"{_word(RESOURCES, acl.resource_type)} {acl.resource_name}"


def _word(names: Mapping[int, str], number: int) -> str:
    return names.get(number, str(number)).lower()


def _print(acls: list[Acl], as_json: bool) -> None:
    rows = [
        {
            "resource_type": _word(RESOURCES, acl.resource_type),
            "resource_name": acl.resource_name,
            "pattern_type": _word(PATTERNS, acl.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": _word(OPERATIONS, acl.operation),
            "permission": _word(PERMISSIONS, acl.permission_type),
        }
        for acl in acls
    ]
    print_rows(rows, ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"), as_json)
