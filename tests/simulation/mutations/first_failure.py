"""Plays the histories of the tree that it is in, up to the first that fails, and prints what it found."""

from __future__ import annotations

import json
from itertools import takewhile

from tests.simulation.runner import Result, play_each


def main(first: int, most: int, workers: int) -> None:
    """Prints how many were played, and the seed and the violation of the first that failed."""
    played = 0
    failed: list[Result] = []
    # Those that are under way when one fails are played to their end: one of them may have the smaller seed.
    for result in play_each(takewhile(lambda _: not failed, range(first, first + most)), workers):
        played += 1
        if result.story is not None:
            failed.append(result)
    if not failed:
        print(json.dumps((played, None, "")))
        return
    found = min(failed, key=lambda result: result.seed)
    violation = (found.story or "").splitlines()[0].removeprefix(f"seed {found.seed}: ")
    print(json.dumps((found.seed - first + 1, found.seed, violation)))
