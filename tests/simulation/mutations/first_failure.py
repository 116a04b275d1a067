"""Plays the histories of the tree that it is in, up to the first that fails, and prints what it found."""

from __future__ import annotations

import json
import random
from itertools import takewhile

from tests.simulation.loop import SimulatedLoop
from tests.simulation.quick_faults import Turmoil
from tests.simulation.runner import Result, kind_of, play_each
from tests.simulation.several import Several


def main(first: int, most: int, workers: int, turmoils: int, clusters: int, crashes: int, kraft: int) -> None:
    """Prints how many were played, and the seed and the violation of the first that failed.

    `turmoils`, `clusters`, `crashes`: not 0 where other histories need not be played, as one broker alone, or a
    history without crashes, goes none of the ways that were changed; they are counted all the same.
    `kraft`: all histories are of that kind."""
    failed: list[Result] = []
    only = "kraft" if kraft else None
    # Those that are under way when one fails are played to their end: one of them may have the smaller seed.
    seeds = [
        seed
        for seed in range(first, first + most)
        if (not turmoils or kind_of(seed, only)[0] is Turmoil)
        and (not clusters or issubclass(kind_of(seed, only)[0], Several))
        and (not crashes or _has_crashes(seed, only))
    ]
    for result in play_each(takewhile(lambda _: not failed, seeds), workers, only):
        if result.story is not None:
            failed.append(result)
    if not failed:
        print(json.dumps((most, None, "")))
        return
    found = min(failed, key=lambda result: result.seed)
    violation = (found.story or "").splitlines()[0].removeprefix(f"seed {found.seed}: ")
    print(json.dumps((found.seed - first + 1, found.seed, violation)))


def _has_crashes(seed: int, only: str | None) -> bool:
    """Whether brokers of the seed's history may crash: a world's first draw, see there."""
    loop = SimulatedLoop(seed)
    try:
        return random.Random(loop.rng.getrandbits(64)).random() < kind_of(seed, only)[1].crashes
    finally:
        loop.close()
