"""What a client needs to be a member of a group of the newer protocols, and to have such a group described."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.gate.access import may_group, may_topic
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def refused_heartbeat(ctx: RequestContext, group_id: str, topics: Iterable[str] | None) -> ErrorCode:
    """Why the client cannot be a member of the group with a subscription to these topics; NONE where it can."""
    if ctx.gate is None:
        return ErrorCode.NONE
    if not may_group(ctx, Operation.READ, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not all(may_topic(ctx, Operation.DESCRIBE, name) for name in topics or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
