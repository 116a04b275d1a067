"""What handlers ask before they show or change a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker._fast.net.pending import Request


def may(ctx: Request, operation: Operation, kind: ResourceKind, name: str, *, quietly: bool = False) -> bool:
    """Whether the request's client may do that; one comparison where there is no gate.

    `quietly`: the client has not asked for that resource, so that a denial is nothing to be noted."""
    return ctx.gate is None or ctx.gate.allows(ctx, operation, kind, name, quietly)


def may_cluster(ctx: Request, operation: Operation, *, quietly: bool = False) -> bool:
    """The same of the cluster."""
    return may(ctx, operation, ResourceKind.CLUSTER, CLUSTER_NAME, quietly=quietly)


def may_topic(ctx: Request, operation: Operation, name: str, *, quietly: bool = False) -> bool:
    """The same of a topic."""
    return may(ctx, operation, ResourceKind.TOPIC, name, quietly=quietly)


def may_group(ctx: Request, operation: Operation, group_id: str) -> bool:
    """The same of a group."""
    return may(ctx, operation, ResourceKind.GROUP, group_id)


def may_for_any(ctx: Request, operation: Operation, kind: ResourceKind) -> bool:
    """Whether the request's client may do that to at least one resource of that kind."""
    return ctx.gate is None or ctx.gate.is_authorized_for_any(operation, kind)


def require_cluster(ctx: Request, operation: Operation) -> None:
    """KafkaError(CLUSTER_AUTHORIZATION_FAILED) where the client may not do that to the cluster."""
    if not may_cluster(ctx, operation):
        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def require_topic(ctx: Request, operation: Operation, name: str) -> None:
    """KafkaError(TOPIC_AUTHORIZATION_FAILED) where the client may not do that to a topic."""
    if not may_topic(ctx, operation, name):
        raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def require_group(ctx: Request, operation: Operation, group_id: str) -> None:
    """KafkaError(GROUP_AUTHORIZATION_FAILED) where the client may not do that to a group."""
    if not may_group(ctx, operation, group_id):
        raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")


def require_transactional_id(ctx: Request, operation: Operation, transactional_id: str) -> None:
    """KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED) where the client may not do that to a transactional id."""
    if not may(ctx, operation, ResourceKind.TRANSACTIONAL_ID, transactional_id):
        raise KafkaError.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed.")
