"""What a process has of memory."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """What it has in memory, without pages of files."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10
