"""`python -m tests.simulation`: see `runner.py`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.one_hash import with_one_hash
from tests.simulation.runner import KINDS, play_each, play_seed
from tests.simulation.shrink import shrink
from tests.simulation.world import ViolationError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--replay", type=int)
    parser.add_argument("--shrink", type=int)
    parser.add_argument("--kind", choices=sorted(KINDS), help="play this kind, which no seed draws by itself")
    parser.add_argument("--most-failures", type=int, default=10)
    given = parser.parse_args()
    if given.replay is not None:
        try:
            print(play_seed(given.replay, only=given.kind))
        except ViolationError as error:
            print(error)
            return 1
        return 0
    if given.shrink is not None:
        smallest = shrink(given.shrink, given.kind)
        print("no violation" if smallest is None else smallest)
        return 0 if smallest is None else 1
    seeds = range(given.seed, given.seed + given.simulations)
    return simulate(seeds, given.workers, given.most_failures, given.kind)


def simulate(seeds: range, workers: int, most_failures: int, kind: str | None = None) -> int:
    """Play them all, or until so many have failed."""
    began, played, answers = time.monotonic(), 0, 0
    failed: list[int] = []
    for result in play_each(seeds, workers, kind):
        played += 1
        if result.outcome is not None:
            answers += result.outcome.answers
        if result.story is not None:
            failed.append(result.seed)
            print(result.story.splitlines()[0], flush=True)
        if len(failed) >= most_failures:
            break
        if played % 500 == 0:
            print(f"{played} histories, {answers} answers, {len(failed)} failed", flush=True)
    seconds = time.monotonic() - began
    print(f"{played} histories with {answers} answers in {seconds:.0f} s, {len(failed)} failed: {sorted(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    with_one_hash("tests.simulation")
    sys.exit(main())
