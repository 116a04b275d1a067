"""What an active controller does by itself, each at its own interval (KIP-631).

    no-op record       metadata.max.idle.interval.ms: brokers see that there is a controller, and how far the log is
    stale brokers      an eighth of a session: one is fenced at a time
    balance            leader.imbalance.check.interval.seconds: preferred replicas lead again
    unclean            unclean.leader.election.interval.ms: topics that allow it get leaders
    tokens             an hour: delegation tokens that have expired go

A controller that stood still for longer than a session finds all brokers silent.  It first has to know that it still
leads: another one may have taken over, and the brokers may have been heard by it.  Kafka fences them at once.

What fails is tried again after five minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kbroker.errors import KafkaError
from kbroker.security.delegation_tokens import ExpiredTokens

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.controller.active import ActiveController
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.cluster")

AGAIN_SECONDS: Final = 0.01
FAILED_SECONDS: Final = 300.0
TOKENS_SECONDS: Final = 3600.0
LOOKS_A_SESSION: Final = 8
IDLE_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Chore:
    """`run()`: whether there is more to be done at once."""

    name: str
    seconds: float
    run: Callable[[], Awaitable[bool]]
    due: float = 0.0


class Chores:
    """Belongs to one task, which calls `tick` when it is due."""

    def __init__(self, controller: ActiveController, config: BrokerConfig, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._session = config.get("broker.session.timeout.ms") / 1000
        self._ticked = clock.monotonic()
        self._term: int | None = None
        self._fencing = _Chore("stale brokers", self._session / LOOKS_A_SESSION, controller.fence_stale)
        self._chores = [self._fencing]
        if idle := config.get("metadata.max.idle.interval.ms"):
            self._chores.append(_Chore("no-op", idle / 1000, self._write_no_op))
        if config.get("auto.leader.rebalance.enable"):
            seconds = config.get("leader.imbalance.check.interval.seconds")
            self._chores.append(_Chore("balance", float(seconds), controller.balance))
        unclean = config.get("unclean.leader.election.interval.ms") / 1000
        self._chores.append(_Chore("unclean elections", unclean, controller.elect_uncleanly))
        self._chores.append(_Chore("tokens", TOKENS_SECONDS, self._expire))

    async def tick(self) -> float:
        """Do what is due; seconds until something is due again."""
        now, before = self._clock.monotonic(), self._ticked
        self._ticked = now
        term = self._controller.term
        if term is None:
            self._term = None
            return IDLE_SECONDS
        if term != self._term:
            self._term = term
            for chore in self._chores:
                chore.due = now + chore.seconds
        elif now - before > self._session:
            # What brokers have sent meanwhile is heard before the next look.
            self._fencing.due = now + self._fencing.seconds
            if not await self._try(_Chore("lead", FAILED_SECONDS, self._confirm), now):
                return self._fencing.seconds
        for chore in self._chores:
            if chore.due <= now and self._controller.term == term:
                await self._try(chore, now)
        # What took long here was no standstill.
        self._ticked = self._clock.monotonic()
        return max(0.0, min(chore.due for chore in self._chores) - self._ticked)

    async def _try(self, chore: _Chore, now: float) -> bool:
        """Run a chore; whether it has come to its end."""
        try:
            chore.due = now + (AGAIN_SECONDS if await chore.run() else chore.seconds)
            return True
        except KafkaError as error:
            chore.due = now + FAILED_SECONDS
            if self._controller.term is not None:
                logger.error("the controller's task %s has failed: %s", chore.name, error)
        except Exception:
            chore.due = now + FAILED_SECONDS
            logger.exception("the controller's task %s has failed", chore.name)
        return False

    async def _write_no_op(self) -> bool:
        await self._controller.write_no_op()
        return False

    async def _confirm(self) -> bool:
        """The lead is known to go on when a record of now is committed."""
        logger.warning("the controller stood still for more than a session: it asks whether it still leads")
        await self._controller.write_no_op()
        await self._controller.all_committed()
        return False

    async def _expire(self) -> bool:
        await self._controller.alter_security(ExpiredTokens(self._clock.now_ms()))
        return False
