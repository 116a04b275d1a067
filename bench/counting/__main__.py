"""Count again, and fail where something has grown: `make counts`.

    python -m bench.counting                       all of it, beside bench/counts.json
    python -m bench.counting --part requests       one part: requests, starts, idle, memory
    python -m bench.counting --cells commit-1,one  some requests
    python -m bench.counting --write               what is found becomes what is kept; the commit says why

It ends with 1 where a figure has grown by more than its tolerance, or a row is not kept.  What has shrunk is said, so
that it is kept with `--write`.  Figures of another Python or another kind of processor are not compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.counting.compare import Figures, changes, environment
from bench.counting.counting_runs import MissingToolError, request_figures
from bench.counting.memory import MEMORY
from bench.counting.starts import IDLE_SECONDS, STARTS, idle_wakeups, start_figures
from bench.counting.table import REQUESTS

KEPT = Path(__file__).parent.parent / "counts.json"


def _requests(names: Sequence[str]) -> Figures:
    return request_figures([each for each in REQUESTS if not names or each.name in names])


def _starts(_: Sequence[str]) -> Figures:
    return {f"start {each.name}": start_figures(each) for each in STARTS}


def _idle(_: Sequence[str]) -> Figures:
    return {f"idle for {IDLE_SECONDS} s": {"wake-ups": idle_wakeups()}}


def _memory(_: Sequence[str]) -> Figures:
    return {name: {"bytes": round(measure())} for name, measure in MEMORY.items()}


PARTS: dict[str, Callable[[Sequence[str]], Figures]] = {
    "requests": _requests,
    "starts": _starts,
    "idle": _idle,
    "memory": _memory,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Count, compare, say it; the status."""
    parser = argparse.ArgumentParser(prog="bench.counting", description="Count what requests and starts cost.")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="count this part alone")
    parser.add_argument("--cells", default="", help="count these requests alone")
    parser.add_argument("--write", action="store_true", help="keep what is found")
    arguments = parser.parse_args(argv)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"environment": environment()}
    names = [each for each in arguments.cells.split(",") if each]
    grown = False
    for part in ["requests"] if names else arguments.part or list(PARTS):
        try:
            found = PARTS[part](names)
        except MissingToolError as error:
            print(error, file=sys.stderr)
            return 2
        grown |= _say(part, kept.get(part, {}), found, is_comparable=kept["environment"] == environment())
        if arguments.write:
            kept[part] = {**(kept.get(part, {}) if names else {}), **found}
            kept["environment"] = environment()
    if arguments.write:
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    return int(grown)


def _say(part: str, kept: Figures, found: Figures, *, is_comparable: bool) -> bool:
    """Print the figures and what has changed; whether something has grown."""
    for row, counts in found.items():
        print(f"{row:48}", "  ".join(f"{value:,g} {counted}" for counted, value in counts.items()), flush=True)
    if not is_comparable:
        print(f"{part}: not compared, because {KEPT.name} is of another Python or another kind of processor")
        return False
    grown = False
    for each in changes(kept, found):
        print("GROWN " if each.has_grown else "shrunk", each, flush=True)
        grown |= each.has_grown
    return grown


if __name__ == "__main__":
    sys.exit(main())
