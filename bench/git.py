"""What git says of this tree; nothing where there is no git, or no tree that it knows."""

from __future__ import annotations

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parent.parent


def said(*command: str) -> str:
    """The output of a command, without blanks around it; empty where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
