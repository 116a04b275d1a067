"""The bit fields of operations that a client may perform, for answers that carry them (KIP-430).

Without an authorizer a client may perform every operation of the resource's type.  Bit numbers are Kafka's AclOperation
codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.gate.access import may, may_cluster
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext

# What an answer has where the request did not ask.
NOT_REQUESTED = -(2**31)

_OF_TOPICS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_OF_CLUSTERS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
_OF_GROUPS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(_OF_TOPICS)
CLUSTER_OPERATIONS = _bits(_OF_CLUSTERS)
GROUP_OPERATIONS = _bits(_OF_GROUPS)


def topic_operations(ctx: RequestContext, name: str) -> int:
    """What the client may do to a topic."""
    return TOPIC_OPERATIONS if ctx.gate is None else _allowed(ctx, _OF_TOPICS, ResourceKind.TOPIC, name)


def group_operations(ctx: RequestContext, group_id: str) -> int:
    """What the client may do to a group."""
    return GROUP_OPERATIONS if ctx.gate is None else _allowed(ctx, _OF_GROUPS, ResourceKind.GROUP, group_id)


def cluster_operations(ctx: RequestContext) -> int:
    """What the client may do to the cluster; 0 where it may not describe it."""
    if ctx.gate is None:
        return CLUSTER_OPERATIONS
    if not may_cluster(ctx, Operation.DESCRIBE):
        return 0
    return _allowed(ctx, _OF_CLUSTERS, ResourceKind.CLUSTER, CLUSTER_NAME)


def _allowed(ctx: RequestContext, operations: Iterable[Operation], kind: ResourceKind, name: str) -> int:
    return _bits(operation for operation in operations if may(ctx, operation, kind, name, quietly=True))
