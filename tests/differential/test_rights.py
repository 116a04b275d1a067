"""A client with some rights gets Apache Kafka's answers from kbroker; `rights.py` has how."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.differential.rights import compare, drawn_requests, drawn_rules

SEED = int(os.environ.get("RIGHTS_SEED", "1"))
SECONDS = float(os.environ.get("RIGHTS_SECONDS", "45"))


@pytest.mark.kafka
@pytest.mark.timeout(3600)
def test_answers_to_a_client_with_some_rights_are_those_of_apache_kafka(tmp_path: Path) -> None:
    """A client would read, change or learn what its rights do not give, or be refused what they do."""
    count, differing = compare(tmp_path, SEED, SECONDS)
    assert count
    assert not differing, "\n  ".join([f"of {count} requests of seed {SEED} these answers differ:", *differing])


def test_a_seed_draws_the_same_rights_and_requests_again() -> None:
    """What was found could not be looked at again."""
    drawn = [(drawn_rules(rng), drawn_requests(rng, 50)) for rng in (random.Random("1 7"), random.Random("1 7"))]
    assert drawn[0] == drawn[1]
    assert drawn[0] != (drawn_rules(random.Random("1 8")), drawn[0][1])
