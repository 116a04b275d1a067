"""Clients that bring, or ask for, much at the same moment, where work is measured (`work.py`).

Dozens of producers send a batch each that is as large as those that wait for the end of a turn may be
(`_fast/net/flush_batch.pyx`); a few consumers ask for the same megabyte again and again, all at once, over sockets that
take it.  So what a turn of the loop appends and sends at its end goes beyond its budget wherever it has no bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.fetchers import FIRST_FETCH_OF_BATCHES, Fetcher
from tests.simulation.producers import FIRST_PRODUCE_WITH_BATCHES, Producer

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

BATCH_BYTES = 62_000
"""With its request it is just below what is answered together."""
ANSWER_BYTES = 1 << 20
PRESSING, ASKING = 80, 6
PRESSED, ASKED = 3, 12
"""So many requests each."""


class Pressing(Producer):
    """One of many that send one large batch after the other."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, PRESSED)
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

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, ASKED)
        self.version = max(self.version, FIRST_FETCH_OF_BATCHES)
        self.is_old = self.sessions = self.slow = False
        self.depth, self.max_wait_ms, self.min_bytes = ASKED, 0, 1
        self.partition_max_bytes = self.max_bytes = ANSWER_BYTES
        self._after = self.rng.uniform(0.05, 1.0)

    async def run(self) -> None:
        await asyncio.sleep(self._after)  # Until there is something.
        await super().run()

    def _fetch(self, connection: ModelConnection) -> None:
        self.offsets = dict.fromkeys(self.offsets, 0)
        super()._fetch(connection)


def flood(world: World) -> Iterable[Client]:
    """All of them."""
    yield from (Pressing(world, f"pressing-{number}") for number in range(PRESSING))
    yield from (Flooded(world, f"flooded-{number}") for number in range(ASKING))


__all__ = ["flood"]
