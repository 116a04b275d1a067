"""Three brokers that are killed, stopped and cut off under load: see `faults/run.py`; and the rules of its verdict."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.scenarios.faults.cluster import KINDS
from tests.scenarios.faults.run import faults
from tests.scenarios.faults.verdict import duplicates, fell, judge


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["kbroker", pytest.param("kraft-mixed", marks=pytest.mark.kafka)])
def test_nothing_acknowledged_is_lost_while_brokers_die_hang_and_are_cut_off(tmp_path: Path, kind: str) -> None:
    """Records or commits that a client was told of would be lost, or come twice, with a machine or a cable."""
    rounds = int(os.environ.get("KBROKER_FAULT_ROUNDS", "3"))
    seed = int(os.environ.get("KBROKER_FAULT_SEED", random.randrange(1 << 31)))
    with faults(tmp_path, seed, KINDS[kind]) as run:
        run.run(rounds)
        run.judge()
    assert run.wrong == [], f"seed {seed}"


@pytest.mark.parametrize(
    ("acknowledged", "found", "wrong"),
    [
        ({0: 0, 1: 1, 2: -1}, [0, 1, 2, 3], ""),
        ({0: 0, 2: 1}, [0, 2], "1 records are lost, the first of them [1]"),
        ({0: 0, 1: 1}, [0], "1 records are lost"),
        ({0: 0, 1: 2}, [0, 1, 2], "at 2 is 2, not 1"),
        ({}, [0, 2, 1], "1 comes behind 2"),
        ({1: 1}, [0, 1, 1], "1 duplicates"),
    ],
)
def test_the_verdict_names_what_is_wrong(acknowledged: dict[int, int], found: list[int], wrong: str) -> None:
    """A run would pass whatever the brokers did."""
    said = judge("t-0", acknowledged, found, is_idempotent=True)
    assert wrong in " ".join(said)
    assert bool(said) == bool(wrong)


def test_what_is_sent_again_is_wrong_of_idempotent_producers_alone() -> None:
    """A producer without idempotence could not be part of a run."""
    found = [0, 1, 0, 1, 2]
    assert judge("t-0", {2: 4}, found, is_idempotent=False) == []
    assert duplicates(found) == 2


def test_a_commit_that_goes_back_is_named() -> None:
    """A group could read again what it had committed."""
    before = {("t", 0): 5, ("t", 1): 7, ("t", 2): 1}
    said = fell(before, {("t", 0): 5, ("t", 1): 6})
    assert said == [
        "the committed offset of t-1 fell from 7 to 6",
        "the committed offset of t-2 fell from 1 to None",
    ]
