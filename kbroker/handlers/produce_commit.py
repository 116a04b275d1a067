"""A produce answer that waits until what it acknowledges is durable: `kbroker.fsync=commit` and `flush.messages`.

The connection is muted meanwhile, as for every handler that waits; the request's bytes are not held.  A partition whose
fsync fails answers with that error, the others with what they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.handlers.services import RequestContext
    from kbroker.storage.group_commit import LogCommitter

NO_OFFSET = -1
NO_TIMESTAMP = -1


class Unsettled(NamedTuple):
    """A partition's answer, and what it waits for."""

    committer: LogCommitter
    last_offset: int
    answer: Any


class ProduceCommit:
    """One answer; it sends itself when every partition is settled."""

    __slots__ = ("_ctx", "_left", "_response")

    def __init__(self, ctx: RequestContext, response: Struct, unsettled: Sequence[Unsettled]) -> None:
        self._ctx = ctx
        self._response = response
        self._left = len(unsettled)
        for committer, last_offset, answer in unsettled:
            committer.wait(last_offset, partial(self._settled, answer))

    def _settled(self, answer: Any, error: KafkaError | None) -> None:
        if error is not None:
            answer.error_code = error.code
            answer.base_offset = answer.log_start_offset = NO_OFFSET
            answer.log_append_time_ms = NO_TIMESTAMP
        self._left -= 1
        if self._left == 0:
            self._ctx.respond(self._response)
