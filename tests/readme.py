"""The README's commands."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

PORTS = (9092, 9644)
ALONE = ("unshare", "--map-root-user", "--net")
PROGRAM = """#!/bin/sh
exec {python} -m {module} "$@"
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def is_taken(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def launcher() -> list[str]:
    """A way to have README's ports for oneself, or none where they are free; skips where neither is possible."""
    try:
        if subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0:
            return list(ALONE)
    except FileNotFoundError:
        pass
    taken = [port for port in PORTS if is_taken(port)]
    if taken:
        pytest.skip(f"README's ports {taken} are in use, and there is no network namespace to be had")
    return []
