"""What becomes of a test that runs out of time, and of the programs that a test run leaves behind.

A test in Python is ended by `pytest-timeout` with a signal: it fails, and its worker goes on.  One that is stuck where
no signal is seen, in C, has its worker ended (`GRACE`); xdist names the test, fails it, and starts another worker,
which goes on behind it (`pytest_xdist_make_scheduler`).  What a test fetches first does not count (`standing_still`).

Programs that a run has started carry `RUN` in their environment.  A process of its own waits for the end of the run:
where that comes without a word, they are killed.
"""

from __future__ import annotations

import faulthandler
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

RUN = "TESTS_OF_KBROKER_RUN"
DONE = b"done"
GRACE = 1.5
"""How many times its limit a test may take before its worker is ended."""

_reapers: list[subprocess.Popen[bytes]] = []


def pytest_configure(config: pytest.Config) -> None:
    """Have somebody clear away what this process leaves."""
    os.environ[RUN] = secrets.token_hex(8)
    command = [sys.executable, str(Path(__file__).with_name("reaper.py")), RUN, os.environ[RUN]]
    reaper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    _reapers.append(reaper)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The run has ended in order."""
    while _reapers:
        _reapers.pop().communicate(DONE)


def _seconds(item: pytest.Item) -> float:
    """A test's limit; 0 for none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and (marker.args or "timeout" in marker.kwargs):
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    given = item.config.getoption("timeout", None)
    return float(item.config.getini("timeout") or 0) if given is None else float(given)


@contextmanager
def standing_still() -> Iterator[None]:
    """The time of the test that runs stands still: what it waits for is a mirror, or another run that fetches."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    if left:
        faulthandler.cancel_dump_traceback_later()
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left)
            # What a test has put in the place of `sys.stderr` need not be a file.
            faulthandler.dump_traceback_later(left * GRACE, file=sys.__stderr__ or sys.stderr, exit=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Have a test that ends its worker not be run again, where files stay together.

    xdist's own scheduler gives it to the next worker, which ends as well, until the run is given up.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class GoesOn(LoadFileScheduling):  # type: ignore[misc]
        def remove_node(self, node: WorkerController) -> str | None:
            units = self.assigned_work[node].values()
            ended = next(((unit, test) for unit in units for test, done in unit.items() if not done), None)
            if ended is not None:
                unit, test = ended
                unit[test] = True
            super().remove_node(node)
            return None if ended is None else ended[1]

        def _assign_work_unit(self, node: WorkerController) -> None:
            """A worker that has ended takes no more: when that is noticed, others get what it was given."""
            with suppress(OSError):
                super()._assign_work_unit(node)

        def _reschedule(self, node: WorkerController) -> None:
            """A worker begins a test when it knows the next one: with less than two it would wait for ever.

            Files whose tests are all done are among the work that a worker leaves behind.  Where several workers have
            ended at once, one that takes the place of another is asked before it knows its tests.
            """
            if node not in self.registered_collections:
                return
            super()._reschedule(node)
            while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._assign_work_unit(node)

    return GoesOn(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process where a test is stuck beyond the reach of signals."""
    seconds = _seconds(item) * GRACE
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
