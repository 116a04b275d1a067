"""A disk that takes its time: fdatasync waits while a file is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def slow_fsync(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment of a broker whose fdatasync waits while a file is there, and that file."""
    library, switch = tmp_path / "slow_fsync.so", tmp_path / "slow"
    source = Path(__file__).with_name("slow_fsync.c")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a C compiler")
    return {"LD_PRELOAD": str(library), "KBROKER_TEST_SLOW": str(switch)}, switch
