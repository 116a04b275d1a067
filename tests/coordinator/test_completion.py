"""Markers of a transaction of many partitions are written in slices of the loop's time."""

from __future__ import annotations

from kbroker.coordinator.transactions.completion import RETRY_SECONDS
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata, TransactionState
from kbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from tests.coordinator.harness import delete_topic
from tests.coordinator.transaction_world import PARTITIONS, TransactionWorld


def ending() -> TransactionWorld:
    """A transaction of three partitions whose markers are being written, each in a turn of the loop of its own."""
    world = TransactionWorld(slice_us=0)
    world.loop.advance(0)
    producer = world.init("t")
    assert isinstance(producer, TransactionMetadata)
    world.add("t", producer.producer_id, producer.producer_epoch, *PARTITIONS)
    world.end("t", producer.producer_id, producer.producer_epoch, commit=True)
    return world


def counts(world: TransactionWorld) -> list[int]:
    return [len(world.markers.written[each]) for each in PARTITIONS]


def test_each_marker_is_written_in_a_turn_of_its_own() -> None:
    """The end of one transaction of thousands of partitions would hold the loop."""
    world = ending()
    assert sum(counts(world)) == 1
    world.loop.advance(0)
    assert counts(world) == [1, 1, 1]
    assert world.found("t").state is TransactionState.COMPLETE_COMMIT


def test_a_retry_takes_the_place_of_what_is_still_being_written() -> None:
    """Both would write: each partition would get the marker twice."""
    world = TransactionWorld(slice_us=0)
    world.loop.advance(0)
    producer = world.init("t")
    assert isinstance(producer, TransactionMetadata)
    world.add("t", producer.producer_id, producer.producer_epoch, *PARTITIONS)
    world.markers.refused.update(PARTITIONS)
    world.end("t", producer.producer_id, producer.producer_epoch, commit=True)
    world.markers.refused.clear()
    # The first partition's retry is due before the loop has come to the turn of the second one.
    world.loop.time += 2 * RETRY_SECONDS
    world.loop.advance(2 * RETRY_SECONDS)
    assert counts(world) == [1, 1, 1]
    assert world.found("t").state is TransactionState.COMPLETE_COMMIT


def test_markers_are_written_no_further_when_the_partition_of_the_state_is_led_no_more() -> None:
    """Two brokers would write markers of one transaction, perhaps of two outcomes."""
    world = ending()
    delete_topic(world.cache, TRANSACTION_STATE_TOPIC)
    world.loop.advance(10)
    assert sum(counts(world)) == 1


def test_an_end_that_is_committed_late_leaves_the_markers_of_the_next_transaction() -> None:
    """The next transaction of the id would be prepared by then, and never end."""
    world = ending()
    (state,) = (each for each in world.coordinator.runtime.active_states() if "t" in each.transactions)
    left = state.unmarked["t"]
    state.completed("t")
    assert state.unmarked["t"] is left
    world.loop.advance(0)
    assert world.found("t").state is TransactionState.COMPLETE_COMMIT
