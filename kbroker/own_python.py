"""The command line of a Python process that this one starts."""

from __future__ import annotations

import sys


def module_command(name: str, *arguments: str) -> list[str]:
    """Run a module in this interpreter.

    `-m` alone puts the current folder in front of what is installed: a `json.py` there, of a user who may write the
    folder in which a broker is started, would run in it.
    """
    return [sys.executable, "-P", "-m", name, *arguments]
