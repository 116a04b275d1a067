"""A produce answer that waits until what it acknowledges is durable: `kbroker.fsync=commit` and `flush.messages`.

The connection is muted meanwhile, as for every handler that waits; the request's bytes are not held.  A partition whose
fsync fails answers with that error, the others with what they have.  When the request's `timeout_ms` is over, those
that still wait answer REQUEST_TIMED_OUT, as Kafka's do that wait for replicas: their records are in the log and may
become durable later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ErrorCode

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
    """One answer; it sends itself when every partition is settled or its time is up."""

    __slots__ = ("_ctx", "_response", "_timer", "_waiting")

    def __init__(self, ctx: RequestContext, response: Struct, unsettled: Sequence[Unsettled], timeout_ms: int) -> None:
        self._ctx = ctx
        self._response = response
        self._waiting = {id(answer): answer for _, _, answer in unsettled}
        loop = ctx.services.loop
        self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._time_out) if loop is not None else None
        for committer, last_offset, answer in unsettled:
            committer.wait(last_offset, partial(self._settled, answer))

    def _time_out(self) -> None:
        """What is settled later finds nothing waiting."""
        for answer in self._waiting.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting.clear()
        self._ctx.respond(self._response)

    def _settled(self, answer: Any, error: KafkaError | None) -> None:
        if self._waiting.pop(id(answer), None) is None:
            return
        if error is not None:
            answer.error_code = error.code
            answer.base_offset = answer.log_start_offset = NO_OFFSET
            answer.log_append_time_ms = NO_TIMESTAMP
        if not self._waiting:
            if self._timer is not None:
                self._timer.cancel()
            self._ctx.respond(self._response)
