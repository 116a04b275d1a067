"""Answers that tell of a coordinator's state wait until its log is durable, where `kbroker.fsync` asks for that.

When the state cannot be made durable nothing may be promised: the connection is closed without an answer, and the
client asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.handlers.services import RequestContext


def hold_back(ctx: RequestContext, answer: Struct) -> bool:
    """Whether `answer` waits for the log of the state; it is sent from here then."""
    state_log = ctx.services.state_log
    if state_log is None or not state_log.unsettled:
        return False

    def settled(error: KafkaError | None) -> None:
        if error is None:
            ctx.respond(answer)
        else:
            ctx.connection.close("state of a coordinator could not be made durable")

    held: bool = state_log.when_durable(settled)
    return held


def durably(handle: Callable[[RequestContext, Any], Struct]) -> Callable[[RequestContext, Any], Struct | None]:
    """A handler whose answer waits for what it wrote."""

    @wraps(handle)
    def handle_durably(ctx: RequestContext, request: Any) -> Struct | None:
        answer = handle(ctx, request)
        return None if hold_back(ctx, answer) else answer

    return handle_durably
