"""What a share-partition does in the situations that the model of records leaves out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import FencedLeaderEpochError, FencedStateEpochError, KafkaError, NotLeaderOrFollowerError
from kbroker.replication.share.acknowledgements import AcknowledgementBatch
from kbroker.replication.share.acquisition import Acquired, Demand, LogBatch
from kbroker.replication.share.persister import StateBatch
from kbroker.replication.share.record_state import RecordState
from kbroker.replication.share.settings import ShareSettings
from kbroker.replication.share.state_batches import combine
from tests.replication.share.surroundings import World

ALL = Demand("alice", 1000, 1000, False)
TENS = [LogBatch(0, 9), LogBatch(10, 19), LogBatch(20, 29)]


def accept(first: int, last: int) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(first, last, [1])]


def test_a_batch_that_fares_as_one_is_one_object() -> None:
    """A group would cost as much memory as it has records under way, not batches."""
    world = World()
    partition = world.partition()
    partition.acquire(ALL, TENS)
    assert len(partition.in_flight.runs) == 1
    partition.acknowledge("alice", accept(5, 6), lambda _: None)
    partition.acknowledge("alice", accept(7, 8), lambda _: None)
    assert [(run.first, run.last) for run in partition.in_flight] == [(0, 4), (5, 8), (9, 29)]


def test_batches_end_where_those_of_the_log_do() -> None:
    """One batch of the log would be sent to several members, and unpacked by each."""
    partition = World().partition()
    assert partition.acquire(Demand("alice", 12, 10, False), TENS) == [Acquired(0, 9, 1), Acquired(10, 19, 1)]
    assert partition.acquire(Demand("bob", 5, 10, True), TENS) == [Acquired(20, 24, 1)]


def test_no_more_records_are_under_way_than_the_limit_says() -> None:
    """A group that never acknowledges would take the broker's memory."""
    world = World(ShareSettings(max_record_locks=15))
    partition = world.partition()
    assert partition.acquire(ALL, TENS) == [Acquired(0, 19, 1)]
    assert not partition.can_acquire
    partition.acknowledge("alice", accept(0, 9), lambda _: None)
    assert partition.can_acquire
    assert partition.acquire(ALL, TENS[2:]) == [Acquired(20, 29, 1)]


def test_what_waits_to_be_stored_goes_in_one_write() -> None:
    """Each acknowledgement would be a record of its own in the log, and wait for the one before."""
    world = World()
    world.persister.at_once = False
    partition = world.partition()
    partition.acquire(ALL, TENS)
    for first in range(0, 30, 3):
        partition.acknowledge("alice", accept(first, first + 2), lambda _: None)
    world.persister.finish(None)
    update = world.persister.waiting[0][0]
    assert (update.start_offset, update.batches) == (30, ())
    world.persister.finish(None)
    assert partition.start_offset == 30 and not partition.in_flight


def test_a_failed_write_gives_the_records_back_to_their_member() -> None:
    """A client that is told that its acknowledgement failed could not try again."""
    world = World()
    world.persister.at_once = False
    partition = world.partition()
    partition.acquire(ALL, TENS)
    answers: list[KafkaError | None] = []
    partition.acknowledge("alice", accept(0, 29), answers.append)
    world.persister.finish(FencedLeaderEpochError())
    assert isinstance(answers[0], NotLeaderOrFollowerError)
    assert len(world.fenced) == 1
    assert partition.in_flight.runs[0].member_id == "alice"


def test_a_fenced_share_partition_refuses_everything() -> None:
    """Records would be acknowledged in a state that another leader has taken over."""
    partition = World().partition()
    partition.acquire(ALL, TENS)
    partition.fence(FencedStateEpochError())
    assert partition.acquire(ALL, TENS) == []
    try:
        partition.acknowledge("alice", accept(0, 9), lambda _: None)
    except FencedStateEpochError:
        return
    raise AssertionError("acknowledged")


def test_records_that_the_log_has_lost_are_forgotten() -> None:
    """A group would wait for ever for records that retention or compaction has taken away."""
    world = World()
    partition = world.partition()
    partition.acquire(ALL, TENS)
    partition.release("alice", lambda _: None)
    partition.move_start(5)
    assert (partition.start_offset, partition.next_fetch_offset) == (5, 5)
    assert partition.acquire(ALL, [LogBatch(12, 19), LogBatch(20, 29)]) == [Acquired(12, 29, 2)]
    assert partition.start_offset == 12


def test_records_of_aborted_transactions_are_archived() -> None:
    """A group that reads committed records only would be given others."""
    partition = World().partition()
    acquired = partition.acquire(ALL, TENS, [(0, 4), (10, 19)])
    assert acquired == [Acquired(5, 9, 1), Acquired(20, 29, 1)]
    assert partition.start_offset == 5
    assert [run.state for run in partition.in_flight] == [
        RecordState.ACQUIRED,
        RecordState.ARCHIVED,
        RecordState.ACQUIRED,
    ]


def test_a_group_begins_where_its_settings_say() -> None:
    """A group without offsets would begin at the beginning, whatever `share.auto.offset.reset` is."""
    world = World()
    world.reset = 17
    assert world.partition().next_fetch_offset == 17


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 10),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@given(BATCHES, st.integers(0, 20))
def test_combined_batches_say_of_each_offset_what_ranks_highest(batches: list[StateBatch], start: int) -> None:
    """A state that was written later would be undone by an earlier one, after a reload."""
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(start, batch.first_offset), batch.last_offset + 1):
            rank = (batch.delivery_count, batch.delivery_state)
            expected[offset] = max(expected.get(offset, rank), rank)
    combined = combine(batches, start)
    found = {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in combined
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    assert found == expected
    assert sum(batch.last_offset - batch.first_offset + 1 for batch in combined) == len(found)
    assert all(left.last_offset + 1 < right.first_offset or left[2:] != right[2:] for left, right in pairwise(combined))


def test_records_that_fail_again_and_again_come_in_ever_smaller_portions() -> None:
    """One record that no member can process would take all that were delivered with it to the delivery limit."""
    world = World(ShareSettings(delivery_count_limit=5))
    partition = world.partition()
    sizes = []
    for _ in range(4):
        acquired = partition.acquire(ALL, TENS[:1])
        sizes.append(sum(last - first + 1 for first, last, _ in acquired))
        partition.release("alice", lambda _: None)
    partition.acquire(ALL, TENS[:1])
    assert sizes == [10, 10, 10, 5]
    held = [run for run in partition.in_flight if run.is_acquired]
    assert [(run.first, run.last, run.delivery_count) for run in held] == [(0, 0, 5)]


def test_the_log_may_begin_behind_what_is_being_stored() -> None:
    """Members would be hung up on until the write is answered."""
    world = World()
    partition = world.partition()
    partition.acquire(ALL, TENS)
    world.persister.at_once = False
    partition.acknowledge("alice", accept(0, 29), lambda error: None)
    partition.move_start(100)
    world.persister.finish(None)
    assert (partition.start_offset, partition.next_fetch_offset) == (100, 100)
