"""Frames of strangers at a controller's listener: `python -m tests.fuzz.strangers --count 1000000 --seed 1`.

Requests of all its APIs, mutated, come to the product's own controller in this process: one that any client may change,
one that gives strangers no rights, one that hears from no other voter, and one that authenticates.  Each connection
sends some and ends its side.  Every request is answered, or its connection is closed, in good time; no error is logged
that no handler expected; an answer can be read; votes and epochs never go back, and stay where they are where the
stranger has no rights, as the metadata does.  A controller lives for some thousand frames, stops in order, and starts
again with what it had; the process does not grow.

A seed gives the same frames; how they meet in time is the machine's.
"""

from __future__ import annotations

import argparse

import uvloop

from tests.fuzz.strangers.run import Run


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run(options.seed, options.count, report=print)
    uvloop.run(run.run())
    for name, count in sorted(run.codes.items()):
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
