"""Clients that bring, or ask for, much at the same moment, where work is measured (`work.py`).

Dozens of producers send a batch each that is as large as those that wait for the end of a turn may be
(`_fast/net/flush_batch.pyx`), and dozens of consumers ask for as much as an answer may have that waits for it; a few
ask for the same megabyte again and again, all at once, over sockets that take it.  So what a turn of the loop appends
and sends goes beyond its budget wherever it has no bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.fetchers import FIRST_FETCH_OF_BATCHES, Fetcher
from tests.simulation.loop import SLOW_JOB_TIMES
from tests.simulation.producers import FIRST_PRODUCE_WITH_BATCHES, Producer

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

BATCH_BYTES = 62_000
"""With its request it is just below what is answered together."""
LARGE_BYTES, WAITING_BYTES = 1 << 20, 190_000
"""What an answer has that is sent at once, and one that waits for the end of the turn."""
PRESSING, ASKING_AT_ONCE, ASKING_IN_TURN = 120, 4, 80
PRESSED, ASKED_AT_ONCE, ASKED_IN_TURN = 3, 12, 4
"""So many requests each."""
SHARE_IN_CLUSTER = 3
"""Brokers of a cluster have one slow machine together, whose work for so many requests would outlast all deadlines."""
AFTER_SECONDS = 0.3
"""When there is something to ask for."""
CONVERTING_NS = 1_000_000_000
"""What all conversions that a broker has at the same moment may take: a third of what an answer may."""


class Pressing(Producer):
    """One of many that send one large batch after the other."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, _requests(world, PRESSED))
        self.depth, self.several, self.slow, self.codec, self.idempotent = 1, False, False, 0, False
        self.acks = self.rng.choice((-1, 1))
        self.version = max(self.version, FIRST_PRODUCE_WITH_BATCHES)

    def _values(self) -> list[bytes]:
        value = self.world.next_value(0)
        return [value + b" " * (BATCH_BYTES - len(value))]

    async def pause(self) -> None:
        """Nothing holds it up."""


class Flooded(Fetcher):
    """Asks for the beginning of a partition, over and over, and reads as fast as it comes."""

    is_reader = False

    def __init__(self, world: World, name: str, size: int, requests: int, depth: int) -> None:
        super().__init__(world, name, requests)
        self.version = max(self.version, FIRST_FETCH_OF_BATCHES)
        self.is_old = self.sessions = self.slow = False
        self.depth, self.max_wait_ms, self.min_bytes = depth, 0, 1
        self.partition_max_bytes = self.max_bytes = size

    async def run(self) -> None:
        await asyncio.sleep(AFTER_SECONDS)
        await super().run()

    async def pause(self) -> None:
        """Nothing holds it up."""

    def _fetch(self, connection: ModelConnection) -> None:
        self.offsets = dict.fromkeys(self.offsets, 0)
        super()._fetch(connection)


def _requests(world: World, alone: int) -> int:
    return alone if world.scale.nodes == 1 else max(1, alone // SHARE_IN_CLUSTER)


def _pressing(world: World) -> int:
    """How many producers press.  Batches for a topic of an old format are converted one after the other, each by a job
    of a thread, and a drawn machine may take 60 ms for the mean one: so many would outlast all deadlines there."""
    if not any(topic.is_old for topic in world.topics.values()):
        return PRESSING
    pace = world.loop.pace
    mean_ns = pace.job_ns * (1 + pace.slow_job * (SLOW_JOB_TIMES - 1))
    return min(PRESSING, int(CONVERTING_NS / mean_ns))


def flood(world: World) -> Iterable[Client]:
    """All of them."""
    at_once, in_turn = _requests(world, ASKED_AT_ONCE), _requests(world, ASKED_IN_TURN)
    yield from (Pressing(world, f"pressing-{number}") for number in range(_pressing(world)))
    for number in range(ASKING_AT_ONCE):
        yield Flooded(world, f"flooded-{number}", LARGE_BYTES, at_once, depth=at_once)
    for number in range(ASKING_AT_ONCE, ASKING_AT_ONCE + ASKING_IN_TURN):
        yield Flooded(world, f"flooded-{number}", WAITING_BYTES, in_turn, depth=1)


__all__ = ["flood"]
