"""`make check-system`, which `make run` and `make test` begin with: what a fresh machine lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import program
from tests.tools import require_tool

ROOT = Path(__file__).parent.parent
OLD = """#!/bin/sh
case "$*" in *version_info*) exit 1;; -V) echo "Python 3.9.2";; esac
"""
BARE = """#!/bin/sh
case "$*" in
  *version_info*) exit 0;;
  *ensurepip*) exit 1;;
  *sysconfig*) echo /nowhere;;
esac
"""


def check(path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The check on a machine that has what lies in `path`."""
    words = [f"{name}={value}" for name, value in variables.items()]
    command = [require_tool("make"), "-s", "-C", str(ROOT), "check-system", *words]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, timeout=200, check=False)


def test_a_machine_that_has_all_is_told_nothing() -> None:
    """Nobody could build."""
    require_tool("cc")
    done = check(os.environ["PATH"], PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("python", "compiler", "lines"),
    [
        (
            None,
            None,
            [
                "  Python 3.11 or newer (python3 not found), its venv module and its headers",
                "  a C compiler (cc not found)",
                "Debian: apt-get install python3 python3-venv python3-dev build-essential",
            ],
        ),
        (
            BARE,
            None,
            [
                "  Python's venv module",
                "  Python's headers (Python.h)",
                "  a C compiler (cc not found)",
                "Debian: apt-get install python3-venv python3-dev build-essential",
            ],
        ),
        (
            BARE,
            "#!/bin/sh\nexit 1\n",
            [
                "  Python's venv module",
                "  Python's headers (Python.h)",
                "  the headers and libraries of C (cc cannot build a program)",
                "Debian: apt-get install python3-venv python3-dev libc6-dev",
            ],
        ),
        (
            OLD,
            None,
            [
                "  Python 3.11 or newer (python3 is Python 3.9.2); name one: make PYTHON=python3.11",
                "  a C compiler (cc not found)",
                "Debian: apt-get install build-essential",
            ],
        ),
    ],
    ids=["nothing", "bare", "no headers", "old"],
)
def test_all_that_is_missing_is_named_at_once(
    tmp_path: Path, python: str | None, compiler: str | None, lines: list[str]
) -> None:
    """A user would install one package after the other, with a build that fails between them."""
    for name, text in (("python3", python), ("cc", compiler)):
        if text is not None:
            program(tmp_path / name, text)
    (tmp_path / "sh").symlink_to(require_tool("sh"))
    done = check(str(tmp_path))
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert said == ["missing:", *lines]
