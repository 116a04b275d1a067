"""Real brokers under many raw connections with several requests under way: every answer judged (`answers/run.py`)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.scenarios.answers.run import run

SECONDS = 2.0


@pytest.mark.parametrize(
    "kind",
    [
        "node",
        "fsync",
        "workers",
        pytest.param("cluster", marks=pytest.mark.slow),
        pytest.param("kafka", marks=(pytest.mark.slow, pytest.mark.kafka)),
    ],
)
def test_every_answer_of_real_brokers_is_right(tmp_path: Path, kind: str) -> None:
    """A client would be given another one's answer, offset or records, or none; Apache Kafka is held to the same."""
    seed = random.randrange(1 << 31)
    answers, wrong = run(kind, SECONDS, seed, tmp_path)
    assert wrong == "", f"seed {seed}"
    assert answers > 1000
