"""Runs the counted process under each of its counters, and makes figures for one request of what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.counting.collector import instructions, system_calls
from bench.counting.table import REQUESTS, RequestCell
from tests.extensions import cost_meter

ROOT = Path(__file__).parent.parent.parent
INSTRUCTIONS, ALLOCATIONS, CALLS = "instructions", "allocations", "system calls"
DIGITS = {INSTRUCTIONS: 0, ALLOCATIONS: 1, CALLS: 2}


class MissingToolError(Exception):
    """What counts is not installed."""


def request_figures(cells: Sequence[RequestCell] = REQUESTS) -> dict[str, dict[str, float]]:
    """What one more request of each cell costs, by counter.  MissingToolError; CalledProcessError."""
    names = [each.name for each in cells]
    found: dict[str, dict[str, float]] = {each.name: {} for each in cells}
    for counter, run in ((INSTRUCTIONS, _instructions), (ALLOCATIONS, _allocations), (CALLS, _calls)):
        counts = run(names)
        for each in cells:
            more = counts[f"{each.name}:twice"] - counts[f"{each.name}:once"]
            found[each.name][counter] = round(more / each.requests, DIGITS[counter] or None)
    return found


def tool(name: str) -> str:
    """Where a program is.  MissingToolError."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not installed (Debian's package {name}; make test-tools)")
    return found


def still_environment() -> Mapping[str, str]:
    """Nothing of what this process was started with: sizes of it would count."""
    return {"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def _inside(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench.counting.inside", *arguments]


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(
        [tool("setarch"), "-R", *argv],
        cwd=ROOT,
        env=dict(still_environment()),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise subprocess.CalledProcessError(done.returncode, argv)
    return done.stdout


def _instructions(names: Sequence[str]) -> Mapping[str, int]:
    valgrind = tool("valgrind")
    if not cost_meter.HAS_CALLGRIND:
        raise MissingToolError(
            "tests/extensions was built without valgrind: remove .venv/made/test-extensions and make it"
        )
    with tempfile.TemporaryDirectory() as folder:
        options = ("--instr-atstart=no", "--collect-atstart=no", f"--callgrind-out-file={folder}/callgrind.out")
        _run([valgrind, "--tool=callgrind", *options, *_inside("instructions", *names)])
        return instructions(Path(folder))


def _allocations(names: Sequence[str]) -> Mapping[str, int]:
    found: Mapping[str, int] = json.loads(_run(_inside("allocations", *names)))
    return found


def _calls(names: Sequence[str]) -> Mapping[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        _run([tool("strace"), "-f", "-qq", "-e", "signal=none", "-o", str(trace), *_inside("calls", *names)])
        return system_calls(trace)
