"""What a client needs to be a member of a group of the newer protocols, and to have such a group described."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbroker.errors import ErrorCode, InvalidGroupIdError, KafkaError
from kbroker.gate.access import may_group, may_topic
from kbroker.handlers.security.authorized_operations import group_operations
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.handlers.services import RequestContext
    from kbroker.schemas import wire

    DescribeRequest = (
        wire.ConsumerGroupDescribeRequest | wire.ShareGroupDescribeRequest | wire.StreamsGroupDescribeRequest
    )


class _Group(Protocol):
    authorized_operations: int


Described = TypeVar("Described", bound=_Group)
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


async def described_groups(
    ctx: RequestContext,
    request: DescribeRequest,
    row: Callable[..., Described],
    is_enabled: bool,
    describe: Callable[[str, Pace], Awaitable[Described]],
) -> list[Described]:
    """A row for each group: the one of `describe`, or one with the KafkaError that stands against it."""
    pace = ctx.services.slices.pace()
    groups = []
    for group_id in request.group_ids:
        await pace
        try:
            if not is_enabled:
                raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
            if not may_group(ctx, Operation.DESCRIBE, group_id):
                raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not group_id:
                raise InvalidGroupIdError()
            group = await describe(group_id, pace)
            if request.include_authorized_operations:
                group.authorized_operations = group_operations(ctx, group_id)
            groups.append(group)
        except KafkaError as error:
            groups.append(row(group_id=group_id, error_code=error.code, error_message=error.message))
    return groups


def require_topics(ctx: RequestContext, names: Iterable[str]) -> None:
    """TOPIC_AUTHORIZATION_FAILED unless the client may describe all topics that a group's description names."""
    if ctx.gate is not None and not all(may_topic(ctx, Operation.DESCRIBE, name) for name in names):
        raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
