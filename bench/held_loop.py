"""`python -m bench.held_loop start ...` is `kbroker start ...`, and says when its event loop was held.

A timer is due each millisecond.  Where the loop's thread has had the processor for longer than HELD_MS since the one
before, a line is printed: `held <monotonic seconds> <milliseconds>`.  What the machine gave to others does not count.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
import time
from collections.abc import Coroutine
from typing import Any
from unittest import mock

import uvloop

from kbroker.cli.main import main

HELD_MS = 2.0
EVERY_SECONDS = 0.001
_run = uvloop.run


async def _watched(work: Coroutine[Any, Any, Any]) -> Any:
    loop, before = asyncio.get_running_loop(), time.thread_time()

    def look() -> None:
        nonlocal before
        now = time.thread_time()
        if (now - before) * 1e3 > HELD_MS:
            print(f"held {time.monotonic():.6f} {(now - before) * 1e3:.1f}", file=sys.stderr, flush=True)
        before = time.thread_time()
        loop.call_later(EVERY_SECONDS, look)

    look()
    return await work


def longest(output: pathlib.Path, since: float) -> float:
    """The longest that the loop was held since that moment (monotonic seconds), in milliseconds, as was printed."""
    found = [HELD_MS]
    for line in output.read_text(errors="replace").splitlines():
        kind, *numbers = line.split(" ")
        if kind == "held" and float(numbers[0]) >= since:
            found.append(float(numbers[1]))
    return max(found)


if __name__ == "__main__":
    with mock.patch.object(uvloop, "run", lambda work, **_: _run(_watched(work))):
        main()
