"""Runs the fuzz target of record batches for KBROKER_FUZZ_SECONDS (5 unless set)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_crafted_batches_are_refused_or_sound(tmp_path: Path) -> None:
    """A crafted batch would crash the broker, or be stored and stop every consumer of its partition."""
    seconds = int(os.environ.get("KBROKER_FUZZ_SECONDS", "5"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_record_batch", str(seconds)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
