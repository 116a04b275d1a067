"""Runs the fuzz targets for FUZZ_SECONDS each (5 unless set)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.fuzz
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", ["fuzz_codec", "fuzz_record_batch"])
def test_nothing_but_clear_errors_comes_of_any_input(target: str, tmp_path: Path) -> None:
    """A crafted request would crash the broker, hang it, be answered as another one, or be stored damaged."""
    seconds = int(os.environ.get("FUZZ_SECONDS", "5"))
    done = subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{target}", str(seconds)],
        cwd=tmp_path,
        # Atheris ends the process where nothing is tidied any more.
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
