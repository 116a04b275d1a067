"""What a viewer may do: which pages it is shown, and which buttons these have.  Each change asks for the right anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value

OPERATIONS: Mapping[ResourceKind, Sequence[Operation]] = MappingProxyType(
    {
        ResourceKind.CLUSTER: (
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER,
            Operation.ALTER_CONFIGS,
            Operation.CREATE,
        ),
        ResourceKind.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALTER_CONFIGS,
        ),
        ResourceKind.GROUP: (Operation.READ, Operation.DELETE, Operation.ALTER_CONFIGS),
        ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE,),
    }
)
"""Of each kind of resource those that the pages ask for."""

_PAGES: Mapping[str, Operation] = MappingProxyType(
    {
        "brokers": Operation.DESCRIBE,
        "clusters": Operation.DESCRIBE,
        "clients": Operation.DESCRIBE,
        "users": Operation.DESCRIBE,
        "acls": Operation.DESCRIBE,
        "settings": Operation.DESCRIBE_CONFIGS,
        "quotas": Operation.DESCRIBE_CONFIGS,
    }
)
"""Pages that take a right on the cluster; any other shows each viewer what it may describe."""


def allowed(parts: ConsoleParts, kind: ResourceKind, name: str) -> list[str]:
    """The names of the operations that the viewer may do to a resource."""
    return [each.name for each in OPERATIONS[kind] if parts.may(each, kind, name)]


def hidden_pages(parts: ConsoleParts) -> list[str]:
    """The pages that the viewer would be refused, and that of schemas without a registry."""
    refused = [page for page, each in _PAGES.items() if not parts.may(each, ResourceKind.CLUSTER, CLUSTER_NAME)]
    return refused if parts.registry is not None else [*refused, "schemas"]


async def rights(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/rights?kind=&name=: names of operations."""
    kind = ResourceKind[parameters.choice("kind", [each.name for each in OPERATIONS])]
    found = allowed(parts, kind, CLUSTER_NAME if kind is ResourceKind.CLUSTER else parameters.text("name"))
    return lambda: found
