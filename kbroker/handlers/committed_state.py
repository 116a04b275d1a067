"""Answers that tell of a coordinator's state wait until the records that say so are committed (`Partition`).

The wait ends after `offsets.commit.timeout.ms`, as every write of Kafka's coordinators does: the answer is then
COORDINATOR_NOT_AVAILABLE, which clients retry; what was written stays in the log and may be committed later.  When it
cannot be committed, nothing may be promised: the connection is closed without an answer, and the client asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker._fast.net.pending import Pending
from kbroker.coordinator.runtime.plan import Outcome, write_error
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    import asyncio

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import HandlerFunction
    from kbroker.replication.state_log import PartitionStateLog

    Refuse = Callable[[ErrorCode], Struct]

    Request = TypeVar("Request")
    Answer = TypeVar("Answer", bound=Struct)

T = TypeVar("T")

TIMEOUT_SETTING = "offsets.commit.timeout.ms"


logger = logging.getLogger("kbroker.handlers")


async def ensure_group_topic(ctx: RequestContext) -> None:
    """Make the topic of the groups' state for the first group of all, if its client did not ask for a coordinator."""
    if ctx.services.metadata_cache.topic(GROUP_METADATA_TOPIC) is None:
        try:
            await ctx.services.controller.ensure_internal_topic(GROUP_METADATA_TOPIC)
        except KafkaError as error:
            logger.error("%s cannot be made: %s", GROUP_METADATA_TOPIC, error)


class StateAnswer(Pending):
    """An answer about a coordinator's state, given when it is known and what was written for it is committed."""

    def __init__(self, state_log: PartitionStateLog | None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._state_log = state_log
        self._loop = loop
        self._refuse: Refuse | None = None

    def give(self, answer: Struct, refuse: Refuse) -> None:
        """The answer is known, and what `refuse` makes of it where the state is not committed in time.

        With a loop it is sent in the loop's next turn if the request waits already: sending it
        lets the connection go on with its next request at once, which must not reach a group that is half way through
        answering its members."""
        log = self._state_log
        if log is None or not log.uncommitted or not log.when_all_committed(partial(self._settled, answer)):
            self._settled(answer, None)
            return
        self._refuse = refuse
        if self.ctx is not None:
            self.started()

    def started(self) -> None:
        if self._refuse is not None and not self.done:
            services = self.ctx.services
            self.expire_after(services.loop, services.config.get(TIMEOUT_SETTING))

    def expired(self) -> None:
        if self._refuse is not None:
            self.answer(self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _settled(self, answer: Struct, error: KafkaError | None) -> None:
        if self.done:
            return
        if error is not None:
            self.ctx.connection.close("state of a coordinator could not be committed")
        elif self._loop is not None and self.ctx is not None:
            self._loop.call_soon(self.answer, answer)
        else:
            self.answer(answer)


class OutcomeAnswer(Pending, Generic[T]):
    """The answer to an operation of a coordinator (`CoordinatorRuntime.write`), given when it is committed.

    Where it is not within `offsets.commit.timeout.ms`: COORDINATOR_NOT_AVAILABLE; where it cannot be: what
    `write_error` says, NOT_COORDINATOR if the partition has another leader now."""

    def __init__(self, outcome: Outcome[T], respond: Callable[[T], Struct], refuse: Refuse) -> None:
        self._outcome = outcome
        self._respond = respond
        self._refuse = refuse

    def started(self) -> None:
        services = self.ctx.services
        self.expire_after(services.loop, services.config.get(TIMEOUT_SETTING))
        self._outcome.when_committed(self._settled)

    def expired(self) -> None:
        self.answer(self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _settled(self, error: KafkaError | None) -> None:
        if not self.done:
            self.answer(self._respond(self._outcome.answer) if error is None else self._refuse(write_error(error)))


def answer_when_committed(
    outcome: Outcome[T], respond: Callable[[T], Struct], refuse: Refuse
) -> Struct | OutcomeAnswer[T]:
    """What a handler returns for an outcome: `respond` makes the answer, `refuse` the one that says an error."""
    return respond(outcome.answer) if outcome.is_committed else OutcomeAnswer(outcome, respond, refuse)


def refused_whole(answer: Struct, code: ErrorCode) -> Struct:
    """An answer of the same API whose error concerns everything that was asked."""
    make: Callable[..., Struct] = type(answer)
    return make(error_code=code)


def when_committed(
    handle: Callable[[RequestContext, Request], Awaitable[Answer]],
    refused: Callable[[Answer, ErrorCode], Struct] = refused_whole,
) -> HandlerFunction:
    """A handler whose answer waits for what it wrote; `refused` makes of it the answer that says an error."""

    @wraps(handle)
    async def handle_and_wait(ctx: RequestContext, request: Request) -> Struct | Pending:
        answer = await handle(ctx, request)
        state_log = ctx.services.state_log
        if state_log is None or not state_log.uncommitted:
            return answer
        pending = StateAnswer(state_log)
        pending.give(answer, partial(refused, answer))
        return pending

    return handle_and_wait
