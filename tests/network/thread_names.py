"""What the threads of a process call themselves."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def threads_named(name: str, pid: int | None = None) -> set[int]:
    """The ids of the threads of the process (this one when not given) that have the name."""
    found = set()
    tasks = Path(f"/proc/{os.getpid() if pid is None else pid}/task")
    for task in tasks.iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text() == f"{name}\n":
                found.add(int(task.name))
    return found
