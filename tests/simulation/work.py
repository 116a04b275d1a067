"""The budget of a turn: how much a broker may do before others have their turn.

Long work awaits a pace between its steps, which gives the loop to others every 2 ms (`kbroker/_fast/base/slices.pyx`).
In that time CPython calls some 20,000 functions, ten in a microsecond; so a callback that calls more has kept all
others waiting for longer than a slice, whatever the machine was like.  The same goes for 4 MB of files, which is what
2 ms take from the page cache.  Calls and bytes are counted, not timed, so a violation is one in each run of its seed.

A share of histories is measured.  Their machine is slow: each look at the clock takes a tenth of a slice, and each
megabyte of files half of one, so that what goes by the clock gives way, as it would for real; and some of their clients
ask for much at once (`bulk.py`), or bring it at the same moment (`flood.py`).
What a process does at its start, before it serves, and what its helper threads do does not count.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.extensions import work_meter

if TYPE_CHECKING:
    from tests.simulation.loop import Process, SimulatedLoop

CALLS = 20_000
BYTES = 4 << 20
MEASURED = 0.1
"""The share of histories."""
SLOW_LOOK_NS = 200_000
DEEPEST = 12


def is_measured(seed: int) -> bool:
    """Whether the work of a seed's history is counted: it is not what the seed draws first, which stays as it is."""
    return random.Random(f"work of {seed}").random() < MEASURED


class Budget:
    """Looks at what each callback does; a violation is a failure of the loop."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._process: Process | None = None
        self.most = 0
        """The calls of the callback that had most."""

    def run(self, process: Process, callback: Callable[[], object]) -> None:
        """Run a callback of a process."""
        if not process.serves:
            callback()
            return
        self._process = process
        work_meter.begin(CALLS, self._over)
        callback()
        del callback  # The error of a job that it has run has this frame.
        self.most = max(self.most, work_meter.calls())
        moved = work_meter.transferred()
        work_meter.begin(0, None)
        if moved > BYTES:
            self._fail(f"{process.name} reads and writes {moved} bytes of files in one turn, where {BYTES} may be")

    def _over(self) -> None:
        frame, names = sys._getframe(0), []
        while frame is not None and len(names) < DEEPEST:
            if "/kbroker/" in frame.f_code.co_filename:
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back  # type: ignore[assignment]
        name = "" if self._process is None else self._process.name
        self._fail(f"{name} calls more than {CALLS} functions in one turn, in {' < '.join(names)}")

    def _fail(self, what: str) -> None:
        self._loop.failures.append(what)
        self._loop.stop()


@contextmanager
def measured(loop: SimulatedLoop) -> Iterator[None]:
    """The work of a loop is counted, where it is one of those."""
    if loop.budget is None:
        yield
        return
    work_meter.start()
    try:
        yield
    finally:
        work_meter.stop()
