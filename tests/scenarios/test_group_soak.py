"""Fifty real consumers of five libraries and protocols, for a minute: see `soak/run.py`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.scenarios.soak.run import soaked


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_groups_keep_their_rules_while_members_come_and_die(tmp_path: Path) -> None:
    """Records would be lost, read again after their commit, or wait for ever, when members of a group come and go."""
    seconds = float(os.environ.get("KBROKER_SOAK_SECONDS", "60"))
    seed = int(os.environ.get("KBROKER_SOAK_SEED", random.randrange(1 << 31)))
    with soaked(tmp_path, seed, members=50) as soak:
        soak.run(seconds)
        verdict = soak.verdict()
    assert [each for each in verdict if each["wrong"]] == [], f"seed {seed}"
