"""A pause that others make longer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from tests.simulation.held_cuts import LatePace

TURNS = 5


class NoPause:
    """A pace whose slice lasts."""

    def __await__(self) -> Generator[object, None, None]:
        yield from ()


def test_a_late_pace_lets_others_have_their_turns_once() -> None:
    """A cut would be over before anything changes, or would never come to its end."""

    async def scenario() -> None:
        pace: Any = LatePace(NoPause(), TURNS)  # type: ignore[arg-type]
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(count())
        await pace
        first = turns
        await pace
        others.cancel()
        assert (first, turns) == (TURNS, TURNS)

    asyncio.run(scenario())
