"""Costs that had grown once and were mended: with its mend taken back, the guard fails for each of them.

Of `bench.counting.compare`, with `tests.simulation.mutations.mutant`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.counting.counting_runs import ROOT, still_environment
from tests.simulation.mutations.mutant import mutant
from tests.simulation.mutations.patches import mutated, read_mutation

SLIPS = sorted((ROOT / "bench/counting/slips").glob("*.patch"))


def test_every_slip_fits_the_tree() -> None:
    """A patch that fits no more would be found by nothing."""
    assert SLIPS
    for path in SLIPS:
        assert mutated(read_mutation(path), ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("path", SLIPS, ids=lambda path: path.stem)
def test_a_slip_fails_the_guard(path: Path) -> None:
    """What was mended could grow back without a word."""
    slip = read_mutation(path)
    part = ["--part", "starts"] if slip.found_by.startswith("start ") else ["--cells", slip.found_by]
    with mutant(slip, ROOT) as folder:
        shutil.copytree(ROOT / "bench", folder / "bench", ignore=shutil.ignore_patterns("results", "__pycache__"))
        environment = {**still_environment(), "PYTHONPATH": str(folder)}
        argv = [sys.executable, "-m", "bench.counting", *part]
        done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    grown = [line for line in done.stdout.splitlines() if line.startswith("GROWN")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(slip.found_by in line for line in grown), done.stdout
