"""What the threads of a process call themselves."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def threads_named(name: str, pid: int | None = None) -> int:
    """How many threads of the process (this one when not given) have the name."""
    count = 0
    tasks = Path(f"/proc/{os.getpid() if pid is None else pid}/task")
    for task in tasks.iterdir():
        with contextlib.suppress(OSError):
            count += (task / "comm").read_text() == f"{name}\n"
    return count
