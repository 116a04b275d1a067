"""Users with passwords, ACLs and quotas, as the cluster's metadata have them; never a password, or what is kept of
one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.manage.quotas import named
from kbroker.console.parameters import PageOf, keys_of, page_of, view_of
from kbroker.security.acl.kinds import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from kbroker.security.authorizer import Operation
from kbroker.security.scram import ScramMechanism

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import ConsoleParts, Value


@dataclass(frozen=True, slots=True)
class UserLine:
    """A user's way to log in."""

    name: str
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class AclLine:
    """One ACL, in Kafka's words."""

    principal: str
    permission: str
    operation: str
    kind: str
    name: str
    pattern: str
    host: str


@dataclass(frozen=True, slots=True)
class Acls:
    """A page of ACLs; `is_in_force`: whether the broker has an authorizer."""

    is_in_force: bool
    page: PageOf[AclLine]


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One quota of an entity: its parts, of which a name is None for the default."""

    entity: str
    parts: tuple[tuple[str, str | None], ...]
    key: str
    value: float


_USER_KEYS: Mapping[str, Key[UserLine]] = keys_of("name", "mechanism", "iterations")
_ACL_KEYS: Mapping[str, Key[AclLine]] = keys_of("principal", "permission", "operation", "kind", "name", "host")
_QUOTA_KEYS: Mapping[str, Key[QuotaLine]] = keys_of("entity", "key", "value")


async def users(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/users?q=&sort=&start=&count="""
    view = view_of(parameters, _USER_KEYS)
    parts.require_cluster(Operation.DESCRIBE)
    lines = [
        UserLine(key.user, ScramMechanism(key.mechanism).sasl_name, credential.iterations)
        for key, credential in sorted(parts.services.metadata_cache.image.security.scram.items())
    ]
    return partial(page_of, lines, view, _USER_KEYS, attrgetter("name"))


async def acls(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/acls?q=&sort=&start=&count="""
    view = view_of(parameters, _ACL_KEYS)
    parts.require_cluster(Operation.DESCRIBE)
    pace = parts.sources.slices.pace()
    lines = []
    for acl in list(parts.services.metadata_cache.image.security.acls.values()):
        await pace
        lines.append(
            AclLine(
                acl.principal,
                PERMISSIONS[acl.permission_type],
                OPERATIONS[acl.operation],
                RESOURCES[acl.resource_type],
                acl.resource_name,
                PATTERNS[acl.pattern_type],
                acl.host,
            )
        )

    def value() -> Acls:
        page = page_of(
            lines, view, _ACL_KEYS, lambda each: f"{each.principal} {each.kind} {each.name} {each.operation}"
        )
        return Acls(parts.services.authorizer is not None, page)

    return value


async def quotas(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/quotas?q=&sort=&start=&count="""
    view = view_of(parameters, _QUOTA_KEYS)
    parts.require_cluster(Operation.DESCRIBE_CONFIGS)
    lines = [
        QuotaLine(named(entity), entity, key, value)
        for entity, values in parts.services.metadata_cache.image.quotas.items()
        for key, value in values.items()
    ]
    return partial(page_of, lines, view, _QUOTA_KEYS, lambda each: f"{each.entity} {each.key}")
