"""What this process has open, by the names that the system gives its descriptors."""

from __future__ import annotations

import contextlib
import os


def open_names() -> list[str]:
    """One name for each descriptor.  Other tests' descriptors may come and go meanwhile: count your own alone."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found
