"""What a broker forgets of idempotent producers: the judge of histories allows what Apache Kafka shows here as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session, produce_values

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.timeout(300)]

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
BATCHES = 6
TRANSACTIONAL = 1 << 4
FORGETS = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}


def sent(session: Session, topic: str, producer_id: int, sequence: int) -> tuple[int, int]:
    """Error and base offset of a batch of one record."""
    now_ms = round(time.time() * 1000)
    batch = Batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, timestamps=(now_ms,))
    answer = session.quietly("Produce", 9, **produce_values(topic, batch))
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def _running(made: BrokerProcess) -> Iterator[BrokerProcess]:
    try:
        made.start()
        yield made
    finally:
        made.kill()


KINDS = [KbrokerProcess, pytest.param(KafkaProcess, marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One of each kind."""
    yield from _running(request.param(tmp_path / "broker", {}))


@pytest.fixture(params=KINDS)
def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One of each kind that forgets a producer within some seconds."""
    yield from _running(request.param(tmp_path / "broker", FORGETS))


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


class _Transactor:
    """A producer of protocol version 1: it adds partitions itself, and has one epoch for all its transactions."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        values = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        wait_for(lambda: self._is_coordinated(name), "the coordinator is there")
        producer = wait_for(lambda: self._answer("InitProducerId", 4, values), "an id")
        self.name, self.id, self.epoch = name, producer.producer_id, producer.producer_epoch
        self._who = {"transactional_id": name, "producer_id": self.id, "producer_epoch": self.epoch}

    def add(self, topic: str) -> None:
        """Add its first partition."""
        values = {f"v3_and_below_{name}": value for name, value in self._who.items()}
        values["v3_and_below_topics"] = [{"name": topic, "partitions": [0]}]
        wait_for(lambda: self._is_added(values), "the transaction before is over")

    def commit(self) -> None:
        """End the transaction."""
        answer = self.session.quietly("EndTxn", 3, **self._who, committed=True)
        assert answer.error_code == 0

    def send(self, topic: str, sequence: int) -> int:
        """A batch of one record; its error."""
        batch = Batch(
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
            timestamps=(round(time.time() * 1000),),
        )
        values = produce_values(topic, batch) | {"transactional_id": self.name, "acks": -1}
        code: int = self.session.quietly("Produce", 9, **values).responses[0].partition_responses[0].error_code
        return code

    def is_known(self, topic: str) -> list[Any]:
        """What the partition's leader remembers of it."""
        asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        found = self.session.quietly("DescribeProducers", 0, **asked).topics[0].partitions[0]
        return [each for each in found.active_producers if each.producer_id == self.id]

    def _is_coordinated(self, name: str) -> bool:
        found = self.session.quietly("FindCoordinator", 4, key_type=1, coordinator_keys=[name])
        return bool(found.coordinators[0].error_code == 0)

    def _answer(self, api: str, version: int, values: dict[str, Any]) -> Any:
        answer = self.session.quietly(api, version, **values)
        return answer if answer.error_code == 0 else None

    def _is_added(self, values: dict[str, Any]) -> bool:
        answer = self.session.quietly("AddPartitionsToTxn", 3, **values)
        (topic,) = answer.results_by_topic_v3_and_below
        return bool(topic.results_by_partition[0].partition_error_code == 0)


def test_a_marker_makes_known_a_producer_that_was_forgotten_and_its_next_batch_is_out_of_order(
    forgetful: BrokerProcess,
) -> None:
    """The judge would call a fault what a producer meets that adds a partition to which it writes nothing."""
    session = Session(forgetful.port)
    session.create("forgotten")
    transactor = _Transactor(session, "t")
    for sequence in range(2):
        transactor.add("forgotten")
        assert transactor.send("forgotten", sequence) == 0
        transactor.commit()
    wait_for(lambda: not transactor.is_known("forgotten"), "the producer is forgotten")
    transactor.add("forgotten")
    transactor.commit()
    wait_for(lambda: transactor.is_known("forgotten"), "its marker is there")
    transactor.add("forgotten")
    assert transactor.send("forgotten", 2) == OUT_OF_ORDER
    assert transactor.send("forgotten", 0) == 0
    session.close()


def test_a_producer_that_was_forgotten_goes_on_where_it_was(forgetful: BrokerProcess) -> None:
    """The judge would take for a fault, or miss one, where a partition has neither batches nor markers any more."""
    session = Session(forgetful.port)
    session.create("idle")
    transactor = _Transactor(session, "t")
    transactor.add("idle")
    assert transactor.send("idle", 0) == 0
    transactor.commit()
    wait_for(lambda: not transactor.is_known("idle"), "the producer is forgotten")
    transactor.add("idle")
    assert transactor.send("idle", 1) == 0
    session.close()
