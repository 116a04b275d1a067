"""Runs the codec's fuzz target for KBROKER_FUZZ_SECONDS (5 unless set)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_nothing_but_decode_errors_comes_out_of_the_codec(tmp_path: Path) -> None:
    """A crafted request would crash the broker, hang it, or be answered as another one."""
    seconds = int(os.environ.get("KBROKER_FUZZ_SECONDS", "5"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_codec", str(seconds)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
