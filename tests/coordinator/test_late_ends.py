"""Ends of transactions that come late, twice or in another version get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.coordinator.transactions.transaction_metadata import MAX_EPOCH
from tests.coordinator.late_ends import ADDED, NEW, InMemory, conversation

ANSWERS = json.loads((Path(__file__).parent / "vectors" / "kafka-4.3.1-late-ends.json").read_text())


@pytest.mark.parametrize("epochs", ["fresh", "exhausted"])
def test_a_late_end_is_judged_by_its_own_version(epochs: str) -> None:
    """A producer whose transaction timed out would be fenced where it may go on, or be told that its work is done where
    it is fenced; with its epochs used up it would not get its next id."""
    ours = dict(conversation(lambda: InMemory(epochs == "exhausted")))
    assert ours == ANSWERS[epochs]


@pytest.mark.parametrize("ends", ["by itself", "by time"])
def test_a_producer_with_the_very_last_epoch_gets_its_next_id(ends: str) -> None:
    """Where an older broker fenced a producer with the last epoch, each end of a transaction would close the
    connection, and its time-out come to nothing again and again."""
    producer = InMemory(is_exhausted=True, epoch=MAX_EPOCH)
    assert producer.add(ADDED) == 0
    if ends == "by time":
        producer.time_out()
    else:
        assert producer.ended(NEW, False) == [0, "other", 0]
    assert producer.renewed() == [0, "other", 1]
