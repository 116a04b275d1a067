"""What the message formats before record batches cost: `pytest bench/test_message_formats.py`."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker._fast.records.message_conversion import messages_of_records, records_of_messages, rewrite_messages
from kbroker._fast.records.message_set import walk_messages
from kbroker._fast.records.record_batch import read_header
from tests.records.reference import encode_batch, simple_records
from tests.scenarios.batches import T0, message_set_v1

COUNT = 150
MESSAGES = b"".join(message_set_v1(b"key", bytes(90), T0 + number) for number in range(COUNT))


@pytest.mark.benchmark(group="message formats")
def test_walk_messages(benchmark: Any) -> None:
    """Checksums and sizes of 150 messages of magic 1."""
    benchmark(walk_messages, MESSAGES, 1)


@pytest.mark.benchmark(group="message formats")
def test_messages_become_records(benchmark: Any) -> None:
    """What Produce 0 to 2 costs beyond a batch."""
    benchmark(records_of_messages, MESSAGES)


@pytest.mark.benchmark(group="message formats")
def test_messages_of_another_magic(benchmark: Any) -> None:
    """What a consumer older than the stored format costs."""
    benchmark(rewrite_messages, MESSAGES, 0)


@pytest.mark.benchmark(group="message formats")
def test_records_become_messages(benchmark: Any) -> None:
    """What Fetch 0 to 3 costs for each batch."""
    values: list[bytes | None] = [bytes(90)] * COUNT
    payload = simple_records(values, keys=[b"key"] * COUNT)
    info = read_header(encode_batch(payload, COUNT, base_timestamp=T0, max_timestamp=T0))
    benchmark(messages_of_records, payload, info, 1)
