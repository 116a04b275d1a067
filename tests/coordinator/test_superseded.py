"""A coordinator of transactions that may have a successor, of which it does not hear."""

from __future__ import annotations

import pytest

from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.transaction_world import PARTITIONS, TransactionWorld


@pytest.fixture
def world() -> TransactionWorld:
    """A producer has a transaction of one partition open, and the broker was cut off then."""
    made = TransactionWorld()
    assert isinstance(made.init("t"), TransactionMetadata)
    producer = made.found("t")
    assert isinstance(made.add("t", producer.producer_id, producer.producer_epoch, PARTITIONS[0]), TransactionMetadata)
    made.may_be_superseded = True
    return made


def verified(world: TransactionWorld, producer: ProducerRequest, *partitions: object) -> object:
    try:
        return world.coordinator.verify(producer, frozenset(partitions))  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code


def test_a_producer_of_its_successors_epoch_is_not_fenced(world: TransactionWorld) -> None:
    """The leader beside a coordinator that was cut off told a producer that it was fenced, which had just begun (seed
    62203): its application would end."""
    known = world.found("t")
    newer = (known.producer_id, known.producer_epoch + 1)
    assert world.add("t", *newer, PARTITIONS[1]) is ErrorCode.NOT_COORDINATOR
    assert world.end("t", *newer, commit=True) is ErrorCode.NOT_COORDINATOR
    assert verified(world, ProducerRequest("t", *newer), PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR
    world.may_be_superseded = False
    assert world.add("t", *newer, PARTITIONS[1]) is ErrorCode.PRODUCER_FENCED
    assert verified(world, ProducerRequest("t", *newer), PARTITIONS[0]) is ErrorCode.PRODUCER_FENCED


def test_an_id_that_only_its_successor_knows_is_not_refused(world: TransactionWorld) -> None:
    """A new producer would be told that its id is not mapped, which ends it."""
    assert world.add("other", 7, 0, PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR
    assert verified(world, ProducerRequest("other", 7, 0), PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_its_successor_has_added_is_not_called_missing(world: TransactionWorld) -> None:
    """A batch of a partition that was added elsewhere would be refused as one of no transaction."""
    known = world.found("t")
    producer = ProducerRequest("t", known.producer_id, known.producer_epoch)
    assert verified(world, producer, PARTITIONS[0]) == {PARTITIONS[0]}
    assert verified(world, producer, *PARTITIONS[:2]) is ErrorCode.NOT_COORDINATOR
    world.may_be_superseded = False
    assert verified(world, producer, *PARTITIONS[:2]) == {PARTITIONS[0]}
