"""ACLs: added and removed one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration.acls import create_acls, delete_acls
from kbroker.console.manage.plan import Action, Done, Plan
from kbroker.console.parameters import BadParameterError, NotThereError
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.metadata.security_image import Acl
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import ANY, OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES, PatternType, Permission
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

EVERYWHERE = "*"
_NAMES = {PatternType.LITERAL: "named", PatternType.PREFIXED: "whose names begin with"}


def _words(numbers: Mapping[int, str]) -> dict[str, int]:
    return {name: number for number, name in numbers.items() if number > ANY}


KINDS, OPERATION_WORDS, PERMISSION_WORDS = _words(RESOURCES), _words(OPERATIONS), _words(PERMISSIONS)
PATTERN_WORDS = {each.name: each.value for each in PatternType}


def _acl(fields: Fields) -> Acl:
    kind = KINDS[fields.choice("kind", tuple(KINDS))]
    principal = fields.text("principal")
    if ":" not in principal:
        raise BadParameterError("principal must be a kind and a name, such as User:alice")
    return Acl(
        kind,
        CLUSTER_NAME if kind == ResourceKind.CLUSTER else fields.text("name"),
        PATTERN_WORDS[fields.choice("pattern", tuple(PATTERN_WORDS))],
        principal,
        fields.text("host", EVERYWHERE),
        OPERATION_WORDS[fields.choice("operation", tuple(OPERATION_WORDS))],
        PERMISSION_WORDS[fields.choice("permission", ("ALLOW", "DENY"))],
    )


def _said(acl: Acl) -> dict[str, object]:
    return {
        "kind": RESOURCES[acl.resource_type],
        "name": acl.resource_name,
        "pattern": PATTERNS[acl.pattern_type],
        "principal": acl.principal,
        "host": acl.host,
        "operation": OPERATIONS[acl.operation],
        "permission": PERMISSIONS[acl.permission_type],
    }


def _sentence(acl: Acl) -> str:
    who = "Everybody" if acl.principal == "User:*" else acl.principal
    where = "" if acl.host == EVERYWHERE else f" from {acl.host}"
    may = "may" if acl.permission_type == Permission.ALLOW else "may not"
    what = "do anything to" if OPERATIONS[acl.operation] == "ALL" else f"{OPERATIONS[acl.operation]}"
    if acl.resource_type == ResourceKind.CLUSTER:
        return f"{who}{where} {may} {what} the cluster."
    noun = RESOURCES[acl.resource_type].lower().replace("_", " ")
    if acl.resource_name == "*" and acl.pattern_type == PatternType.LITERAL:
        return f"{who}{where} {may} {what} every {noun}."
    return f"{who}{where} {may} {what} the {noun}s {_NAMES[PatternType(acl.pattern_type)]} {acl.resource_name}."


def _check(context: Context) -> None:
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    if context.parts.services.authorizer is None:
        raise KafkaError.of(ErrorCode.SECURITY_DISABLED, "the broker has no authorizer: nothing goes by ACLs")


async def plan_addition(context: Context, fields: Fields) -> Plan:
    """What will be allowed or denied, and who loses by it."""
    _check(context)
    acl = _acl(fields)
    known = list(context.parts.services.metadata_cache.image.security.acls.values())
    if acl in known:
        raise BadParameterError("there is such an ACL already")
    is_first = not any(each[:3] == acl[:3] for each in known)
    warnings = []
    if is_first and context.parts.services.config.get("allow.everyone.if.no.acl.found"):
        warnings.append(
            "allow.everyone.if.no.acl.found is on, and this is the first ACL there: all others lose their rights to it."
        )
    if acl.permission_type == Permission.DENY:
        warnings.append("A denial wins over all that allows.")
    return Plan("Add an ACL", [_sentence(acl)], _said(acl), is_first, warnings, button="Add it")


async def add(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_addition`."""
    acl = _acl(fields)
    (row,) = await create_acls(context.client, [acl])
    refuse(row.error_code, row.error_message)
    await context.settle(lambda image: acl in image.security.acls.values())
    return Done([_sentence(acl)])


async def plan_removal(context: Context, fields: Fields) -> Plan:
    """The one ACL that is as the fields say."""
    _check(context)
    acl = _acl(fields)
    if acl not in context.parts.services.metadata_cache.image.security.acls.values():
        raise NotThereError("there is no such ACL")
    holds = "allowed" if acl.permission_type == Permission.ALLOW else "denied"
    return Plan(
        "Remove an ACL",
        [f"This is no longer {holds}: {_sentence(acl)}", "Other ACLs stay, and may say the same."],
        _said(acl),
        button="Remove it",
    )


async def remove(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_removal`."""
    acl = _acl(fields)
    await delete_acls(context.client, [AclFilter(*acl)])
    await context.settle(lambda image: acl not in image.security.acls.values())
    return Done(["The ACL is removed."])


ACTIONS = {
    "acl.add": Action(plan_addition, add),
    "acl.remove": Action(plan_removal, remove),
}
