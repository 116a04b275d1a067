"""One hash seed for all that plays histories: the coordinators of groups go through sets of topics' names."""

from __future__ import annotations

import os
import sys

NAME, SEED = "PYTHONHASHSEED", "0"


def with_one_hash(module: str) -> None:
    """Go on as `python -m module` with that hash seed, unless this process has it."""
    if os.environ.get(NAME) != SEED:
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, NAME: SEED})
