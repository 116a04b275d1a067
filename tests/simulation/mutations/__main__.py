"""`python -m tests.simulation.mutations [NAME …]`: each fault is put into a copy of the tree, and has to be found.

A mutation counts as found where a history fails that does not fail without it, or the test that its patch names.
`--tests` looks for a test that finds it.  Those in `UNFOUND` run by name alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.mutations.mutant import (
    ALL,
    ROOT,
    Finding,
    Which,
    copied,
    first_failing_test,
    first_failure,
    mutant,
)
from tests.simulation.mutations.patches import Mutation, mutations
from tests.simulation.mutations.unfound import UNFOUND
from tests.simulation.one_hash import with_one_hash

MOST_HISTORIES = 2000
VIOLATION_LETTERS = 160


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--simulations", type=int, default=MOST_HISTORIES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turmoils", action="store_true", help="play none but those in turmoil, and count all")
    parser.add_argument("--clusters", action="store_true", help="play no histories of one broker, but count them")
    parser.add_argument("--crashes", action="store_true", help="play none without crashes, but count them")
    parser.add_argument("--kraft", action="store_true", help="play histories of KRaft clusters")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="run these tests and play no histories")
    given = parser.parse_args()
    # The copy of the tree and the processes that play there go with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    known = {each.name: each for each in mutations()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no such mutation: {', '.join(unknown)}")
    chosen = [known[name] for name in given.names] or [each for each in known.values() if each.name not in UNFOUND]
    if given.list:
        for each in known.values():
            print(f"{each.name}: {each.fault}{' NOT FOUND: ' + UNFOUND[each.name] if each.name in UNFOUND else ''}")
        return 0
    print("| mutation | histories | seed | violation |\n|---|---|---|---|", flush=True)  # A test's row has its name.
    with copied(ROOT) as tree:
        missed = [each.name for each in chosen if not _report(each, tree, given)]
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def _report(each: Mutation, tree: Path, given: argparse.Namespace) -> bool:
    """Tell what is found of a mutation; whether that is enough."""
    began = time.monotonic()
    tests = given.tests or ([each.found_by] if each.found_by else [])
    if tests:
        test = find_by_test(each, tree, tests)
        print(f"| {each.name} | {test or 'NOT FOUND'} |", flush=True)
        print(f"{each.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        return test is not None
    found = find(each, tree, given.seed, given.simulations, given.workers, _which(given, each))
    violation = found.violation[:VIOLATION_LETTERS].replace("|", "/") or "NOT FOUND"
    print(f"| {each.name} | {found.histories} | {found.seed or '-'} | {violation} |", flush=True)
    print(f"{each.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found.seed is not None or each.name in UNFOUND


def _which(given: argparse.Namespace, each: Mutation) -> Which:
    return Which(given.turmoils, given.clusters, given.crashes, given.kraft or each.is_of_kraft)


def find(mutation: Mutation, tree: Path, first: int, most: int, workers: int, which: Which = ALL) -> Finding:
    """The first history that the mutation of a tree makes fail."""
    with mutant(mutation, tree) as folder:
        played = 0
        while played < most:
            found = first_failure(folder, most - played, workers, first + played, which)
            played += found.histories
            if found.seed is None or first_failure(tree, 1, 1, found.seed).seed is None:
                return Finding(played, found.seed, found.violation)
            print(f"{mutation.name}: seed {found.seed} fails without it as well", file=sys.stderr)
    return Finding(played)


def find_by_test(mutation: Mutation, tree: Path, tests: Sequence[str]) -> str | None:
    """The first of these tests that fails with the mutation of a tree, and passes without it."""
    with mutant(mutation, tree) as folder:
        found = first_failing_test(folder, tests)
    if found is not None and first_failing_test(tree, [found]) is not None:
        print(f"{mutation.name}: {found} fails without it as well", file=sys.stderr)
        return None
    return found


if __name__ == "__main__":
    with_one_hash("tests.simulation.mutations")
    sys.exit(main())
