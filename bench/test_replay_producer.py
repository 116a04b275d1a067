"""What a replay's record costs in C, beside Python's own way: `pytest bench/test_replay_producer.py`.

The cluster is librdkafka's own mock, within the process, so the numbers hold its cost too; an executor's whole cost
against a broker is what `bench/replay_executor.py` measures.
"""

from __future__ import annotations

import array
import time
from typing import Any

import pytest
from confluent_kafka import Producer, cimpl

from kbroker._fast.replay.delivery_cells import DeliveryCells
from kbroker._fast.replay.librdkafka import Library
from kbroker._fast.replay.replay_producer import ALL_DONE, ReplayProducer
from kbroker._fast.replay.replay_rows import ReplayRows

ROWS = 10_000
VALUE_BYTES = 100
SETTINGS = {"test.mock.num.brokers": "1", "log_level": "0", "linger.ms": "5", "enable.idempotence": "true"}


def rows_of() -> ReplayRows:
    offsets = array.array("i", [at * VALUE_BYTES for at in range(ROWS + 1)])
    values = (None, offsets, b"x" * VALUE_BYTES * ROWS, 0)
    return ReplayRows(None, ROWS, None, values, None, values, bytes(ROWS * 8), bytes(ROWS * 4), None, None)


@pytest.mark.benchmark(group="replay_producer: 10,000 rows of 100 bytes with a header")
def test_play(benchmark: Any) -> None:
    producer = ReplayProducer(Library(cimpl.__file__), SETTINGS, ["bench"])
    producer.describe(b"mark", 1000)
    producer.begin(time.monotonic_ns())
    rows = rows_of()

    def run() -> None:
        slot = producer.hold(rows)
        assert producer.play(slot, 0, 60 * 10**9) == (ALL_DONE, ROWS)
        producer.release(slot)
        assert producer.serve(60 * 10**9) == 0

    run()
    benchmark(run)
    assert producer.acknowledged == producer.sent and not producer.take_failures()
    producer.close()


@pytest.mark.benchmark(group="replay_producer: 10,000 rows of 100 bytes with a header")
def test_play_reference(benchmark: Any) -> None:
    producer = Producer({**SETTINGS, "queue.buffering.max.messages": ROWS + 1})
    value = b"x" * VALUE_BYTES
    ended: list[Any] = []

    def run() -> None:
        for _ in range(ROWS):
            producer.produce(
                "bench", value, None, 0, lambda error, message: ended.append(error), headers=[("m", value)]
            )
        producer.flush(60)

    run()
    benchmark(run)
    assert not any(ended)


@pytest.mark.benchmark(group="delivery_cells: a record in its cell and two histograms")
def test_cells(benchmark: Any) -> None:
    cells = DeliveryCells()

    def run() -> None:
        for number in range(1_000):
            cells.add(number >> 8, 0, number & 3, number * 7, number * 11)

    benchmark(run)
    assert cells.take()
