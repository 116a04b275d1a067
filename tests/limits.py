"""What becomes of a test that runs out of time, and of the programs that a test run leaves behind.

A test in Python is ended by `pytest-timeout` with a signal: it fails, and its worker goes on.  One that is stuck where
no signal is seen, in C, has its worker ended (`GRACE`); xdist names the test, fails it, and starts another worker.

Programs that a run has started carry `RUN` in their environment.  A process of its own waits for the end of the run:
where that comes without a word, they are killed.
"""

from __future__ import annotations

import faulthandler
import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

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
