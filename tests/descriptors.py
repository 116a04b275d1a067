"""What this process has open, by the names that the system gives its descriptors."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest


def open_names() -> list[str]:
    """One name for each descriptor.  Other tests' descriptors may come and go meanwhile: count your own alone."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def close_below(folder: Path) -> None:
    """Close the files below a folder that this process has open, as the end of the process would."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            is_file = stat.S_ISREG(os.fstat(number).st_mode)
            if is_file and os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/"):
                os.close(number)


@pytest.fixture
def files_left_by_crashes(tmp_path: Path) -> Iterator[None]:
    """Close what a test has left open below its directory: a part that crashes closes nothing.

    For parts that keep descriptors as numbers, and give none back when they are collected.
    """
    yield
    close_below(tmp_path)
