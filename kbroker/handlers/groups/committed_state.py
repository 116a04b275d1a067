"""Answers that report a coordinator's state wait until the records of that state are committed (`Partition`).

The wait ends after `offsets.commit.timeout.ms`, as every write of Kafka's coordinators does: the answer is then
COORDINATOR_NOT_AVAILABLE, which clients retry; what was written stays in the log and may be committed later.  When the
records cannot be committed, any answer would promise too much: the connection is closed without one, and the client
asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Final, TypeVar

from kbroker._fast.net.pending import Pending
from kbroker.coordinator.runtime.plan import Outcome, write_error
from kbroker.errors import ErrorCode, KafkaError, RequestTimedOutError
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.replication.commit_wait import CommitWait

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.handlers.table import HandlerFunction

    Refuse = Callable[[ErrorCode], Struct]

    Request = TypeVar("Request")
    Answer = TypeVar("Answer", bound=Struct)

T = TypeVar("T")

TIMEOUT_SETTING: Final = "offsets.commit.timeout.ms"


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

    def __init__(self, services: Services, *, in_next_turn: bool = False) -> None:
        """`in_next_turn`: sending it lets the connection go on with its next request at once, which must not reach a
        group that is half way through answering its members."""
        assert services.loop is not None, "a broker with coordinators has one"
        self._services = services
        self._loop = services.loop
        self._in_next_turn = in_next_turn

    def give(self, answer: Struct, refuse: Refuse) -> None:
        """Sends `answer` once the state is committed; the answer of `refuse` when it is not committed in time."""
        services, wait = self._services, CommitWait()
        if (log := services.state_log) is not None:
            log.when_all_committed(wait.expect())
        wait.then(
            lambda: self._settled(answer, refuse, wait.error),
            services.config.get(TIMEOUT_SETTING),
            self._loop.call_later,
        )

    def _settled(self, answer: Struct, refuse: Refuse, error: KafkaError | None) -> None:
        if self.done:
            return
        if isinstance(error, RequestTimedOutError):
            self.answer(refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif error is not None:
            self.ctx.connection.close("state of a coordinator could not be committed")
        elif self._in_next_turn and self.ctx is not None:
            self._loop.call_soon(self.answer, answer)
        else:
            self.answer(answer)


def answer_when_committed(
    ctx: RequestContext, outcome: Outcome[T], respond: Callable[[T], Struct], refuse: Refuse
) -> Struct | Pending:
    """A handler's return value for an outcome: `respond` makes the answer, `refuse` the answer with an error code.

    COORDINATOR_NOT_AVAILABLE when the outcome is not committed within `offsets.commit.timeout.ms`.  When it cannot be
    committed, the code of `write_error`: NOT_COORDINATOR if the partition has another leader now."""
    if outcome.is_committed:
        return respond(outcome.answer)
    wait = CommitWait()
    outcome.when_committed(wait.expect())
    return wait.answer_within(
        ctx.services.config.get(TIMEOUT_SETTING),
        lambda: respond(outcome.answer) if wait.error is None else refuse(write_error(wait.error)),
    )


def refused_whole(answer: Struct, code: ErrorCode) -> Struct:
    """An answer of the same API whose error concerns everything that was asked."""
    make: Callable[..., Struct] = type(answer)
    return make(error_code=code)


def when_committed(
    handle: Callable[[RequestContext, Request], Awaitable[Answer]],
    refused: Callable[[Answer, ErrorCode], Struct] = refused_whole,
) -> HandlerFunction:
    """A handler whose answer waits until its records are committed; `refused` makes an answer with an error of it."""

    @wraps(handle)
    async def handle_and_wait(ctx: RequestContext, request: Request) -> Struct | Pending:
        answer = await handle(ctx, request)
        state_log = ctx.services.state_log
        if state_log is None or not state_log.uncommitted:
            return answer
        pending = StateAnswer(ctx.services)
        pending.give(answer, partial(refused, answer))
        return pending

    return handle_and_wait
