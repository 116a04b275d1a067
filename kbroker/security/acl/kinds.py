"""The numbers of rules and filters, as Kafka's enums have them (`AclOperation`, `ResourceType`, `PatternType`,
`AclPermissionType`), with the names that people write.

`Operation` and `ResourceKind` are what a request may be about; rules and filters have a few numbers more.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from kbroker.security.authorizer import Operation, ResourceKind

UNKNOWN, ANY, ALL = 0, 1, 2
"""ANY is for filters alone; ALL is an operation of rules."""
WILDCARD = "*"


class PatternType(IntEnum):
    """How a rule names its resources."""

    LITERAL = 3
    PREFIXED = 4


MATCH = 2
"""The pattern type of a filter for all rules that concern a resource."""


class Permission(IntEnum):
    """What a rule says."""

    DENY = 2
    ALLOW = 3


OPERATIONS: Mapping[int, str] = MappingProxyType(
    {UNKNOWN: "UNKNOWN", ANY: "ANY", ALL: "ALL", **{each.value: each.name for each in Operation}}
)
RESOURCES: Mapping[int, str] = MappingProxyType(
    {UNKNOWN: "UNKNOWN", ANY: "ANY", **{each.value: each.name for each in ResourceKind}}
)
PATTERNS: Mapping[int, str] = MappingProxyType(
    {UNKNOWN: "UNKNOWN", ANY: "ANY", MATCH: "MATCH", **{each.value: each.name for each in PatternType}}
)
PERMISSIONS: Mapping[int, str] = MappingProxyType(
    {UNKNOWN: "UNKNOWN", ANY: "ANY", **{each.value: each.name for each in Permission}}
)


def camel(name: str) -> str:
    """A name as Kafka's znodes, tools and audit log write it: TRANSACTIONAL_ID is TransactionalId."""
    return "".join(part.capitalize() for part in name.split("_"))


def number_of(names: Mapping[int, str], text: str) -> int:
    """The number of a name in any spelling that Kafka or its tools use; UNKNOWN for any other."""
    wanted = text.replace("_", "").lower()
    return next((number for number, name in names.items() if name.replace("_", "").lower() == wanted), UNKNOWN)
