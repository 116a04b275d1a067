"""Which schema ids a registry has: asked on threads, few at a time, and remembered for a while: the loop never waits.

An id that is there is believed for KNOWN_SECONDS, one that is not for UNKNOWN_SECONDS, after which a schema that was
registered meanwhile is found.  While the registry does not answer it is asked once in AWAY_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.log_output import RateLimitedLog
from kbroker.metrics.sources import FAILED, FOUND, UNKNOWN
from kbroker.registry.errors import RegistryAwayError, SchemaError

if TYPE_CHECKING:
    from kbroker.clock import Clock

logger = logging.getLogger("kbroker.registry")

KNOWN_SECONDS = 300.0
UNKNOWN_SECONDS = 5.0
AWAY_SECONDS = 1.0
MOST_IDS = 10_000
"""Remembered of either kind."""
THREADS = 2
"""Of the loop's, which others need, too."""


class KnownIds:
    """Used on the loop; the set of `fresh` changes there alone."""

    def __init__(self, has: Callable[[int], bool], clock: Clock) -> None:
        """`has` waits; it raises SchemaError where the registry does not say."""
        self._has = has
        self._clock = clock
        self._known: set[int] = set()
        self._known_until: OrderedDict[int, float] = OrderedDict()
        self._unknown_until: OrderedDict[int, float] = OrderedDict()
        self._away: tuple[float, str] | None = None
        self._asked: dict[int, asyncio.Future[bool]] = {}
        self._turn = asyncio.Semaphore(THREADS)
        self._complaints = RateLimitedLog(logger)
        self.answers: Counter[str] = Counter()
        """How often the registry was asked, by what it said (`metrics.sources.SCHEMA_ANSWERS`)."""

    def fresh(self) -> set[int]:
        """The ids that are known to be there."""
        now = self._clock.monotonic()
        while self._known_until:
            schema_id, until = next(iter(self._known_until.items()))
            if now < until and len(self._known_until) <= MOST_IDS:
                break
            del self._known_until[schema_id]
            self._known.discard(schema_id)
        return self._known

    @property
    def count(self) -> int:
        """How many ids are believed to be there."""
        return len(self.fresh())

    def lacks(self, schema_id: int) -> bool:
        """Whether the registry said lately that there is no such schema."""
        return self._clock.monotonic() < self._unknown_until.get(schema_id, 0.0)

    async def ask(self, schema_id: int) -> bool:
        """Whether there is a schema of that id, after the registry was asked.  RegistryAwayError."""
        if self._away is not None:
            until, text = self._away
            if self._clock.monotonic() < until:
                raise RegistryAwayError(text)
            self._away = None
        # A waiter may be cancelled; others wait for the same answer.
        return await asyncio.shield(self._asking(schema_id))

    def _asking(self, schema_id: int) -> asyncio.Future[bool]:
        """The question that is under way."""
        asked = self._asked.get(schema_id)
        if asked is None:
            asked = self._asked[schema_id] = asyncio.get_running_loop().create_future()
            asked.add_done_callback(_look_at_failure)
            asking = asyncio.get_running_loop().create_task(self._look_up(schema_id))
            asking.add_done_callback(lambda done: self._note(schema_id, done))
        return asked

    async def _look_up(self, schema_id: int) -> bool:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(None, self._has, schema_id)

    def _note(self, schema_id: int, done: asyncio.Future[bool]) -> None:
        asked = self._asked.pop(schema_id)
        if done.cancelled():
            asked.cancel()
            return
        error, now = done.exception(), self._clock.monotonic()
        if error is not None:
            text = str(error) if isinstance(error, SchemaError) else f"{type(error).__name__}: {error}"
            self._away = now + AWAY_SECONDS, text
            self.answers[FAILED] += 1
            self._complaints.warning("away", "%s; records with ids that are new are refused meanwhile", text)
            asked.set_exception(RegistryAwayError(text))
            return
        self.answers[FOUND if done.result() else UNKNOWN] += 1
        if done.result():
            self._known.add(schema_id)
            self._known_until[schema_id] = now + KNOWN_SECONDS
            self._known_until.move_to_end(schema_id)
        else:
            self._unknown_until[schema_id] = now + UNKNOWN_SECONDS
            self._unknown_until.move_to_end(schema_id)
            if len(self._unknown_until) > MOST_IDS:
                self._unknown_until.popitem(last=False)
        asked.set_result(done.result())


def _look_at_failure(asked: asyncio.Future[bool]) -> None:
    """asyncio would complain of an error that is waited for no more."""
    if not asked.cancelled():
        asked.exception()
