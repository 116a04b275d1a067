"""What a broker forgets of idempotent producers: the judge of histories allows what Apache Kafka shows here as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.error_codes import ErrorCode
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session, produce_values

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.timeout(300)]

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
BATCHES = 6


def sent(session: Session, topic: str, producer_id: int, sequence: int) -> tuple[int, int]:
    """Error and base offset of a batch of one record."""
    now_ms = round(time.time() * 1000)
    batch = Batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, timestamps=(now_ms,))
    answer = session.quietly("Produce", 9, **produce_values(topic, batch))
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


@pytest.fixture(params=[KbrokerProcess, pytest.param(KafkaProcess, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One of each kind."""
    made: BrokerProcess = request.param(tmp_path / "broker", {})
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_a_producer_that_a_partition_does_not_know_may_begin_anywhere(broker: BrokerProcess) -> None:
    """The judge would call a fault what producers meet whose first batch was refused and whose second was not."""
    session = Session(broker.port)
    session.create("fresh")
    producer_id = session.producer_id()
    assert sent(session, "fresh", producer_id, 1) == (0, 0)
    assert sent(session, "fresh", producer_id, 0) == (OUT_OF_ORDER, -1)
    session.close()


def test_after_two_crashes_a_producers_last_batch_is_known_and_earlier_ones_may_not_be(broker: BrokerProcess) -> None:
    """The judge would call a fault what a snapshot of a recovery has left out."""
    session = Session(broker.port)
    session.create("torn")
    producer_id = session.producer_id()
    for sequence in range(BATCHES):
        assert sent(session, "torn", producer_id, sequence) == (0, sequence)
    assert sent(session, "torn", producer_id, 3) == (0, 3)
    session.close()
    for _ in range(2):
        broker.kill()
        broker.start()
    session = Session(broker.port)
    session.until_led("torn", 1)
    allowed = {(OUT_OF_ORDER, -1)} if isinstance(broker, KafkaProcess) else {(OUT_OF_ORDER, -1), (0, 3)}
    assert sent(session, "torn", producer_id, 3) in allowed
    assert sent(session, "torn", producer_id, BATCHES - 1) == (0, BATCHES - 1)
    session.close()
