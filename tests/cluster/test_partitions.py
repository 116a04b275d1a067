"""Leaders, ISRs, epochs and reassignments of partitions: the decisions alone, over random states of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbroker.cluster.partitions import (
    Election,
    PartitionContext,
    change,
    elect,
    is_alive,
    replica_failed,
    replica_returned,
    take_isr,
    without_broker,
)
from kbroker.cluster.reassignments import call_off, former_replicas, is_reassigning, reassign, target_replicas
from kbroker.cluster.requests import ElectionType, IsrChange
from kbroker.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NoReassignmentInProgressError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
)
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.types import TopicPartition

NODES = (1, 2, 3, 4)
NAME = TopicPartition("t", 0)
ALL = PartitionContext(alive=frozenset(NODES), min_insync_replicas=2)

subsets = st.sets(st.sampled_from(NODES))
contexts = st.builds(
    PartitionContext,
    alive=subsets.map(frozenset),
    min_insync_replicas=st.integers(1, 3),
    has_elr=st.booleans(),
    is_unclean_allowed=st.booleans(),
)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    """A partition in some state that decisions can lead to."""
    replicas = draw(st.permutations(NODES))[: draw(st.integers(1, 4))]
    isr = [each for each in replicas if draw(st.booleans())]
    elr = [each for each in replicas if each not in isr and draw(st.booleans())]
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    return PartitionImage(
        0,
        leader,
        draw(st.integers(0, 9)),
        tuple(replicas),
        tuple(isr),
        draw(st.integers(0, 9)),
        offline_replicas=tuple(each for each in replicas if draw(st.integers(0, 4)) == 0),
        elr=tuple(elr),
        last_known_elr=() if isr else (draw(st.sampled_from(replicas)),),
    )


def partition(*replicas: int, leader: int | None = None, isr: tuple[int, ...] | None = None) -> PartitionImage:
    """A partition that is led by its first replica, all of them in sync."""
    return PartitionImage(
        0, replicas[0] if leader is None else leader, 5, replicas, replicas if isr is None else isr, 7
    )


def check_sound(before: PartitionImage, after: PartitionImage) -> None:
    """What holds of every state and every step."""
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert set(after.isr) <= set(after.replicas)
    assert not set(after.elr) & set(after.isr)
    assert set(after.adding_replicas) | set(after.removing_replicas) <= set(after.replicas)
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch
    assert after.leader_epoch >= before.leader_epoch
    stored = replace(after, offline_replicas=before.offline_replicas)
    assert (after.partition_epoch > before.partition_epoch) == (stored != before)


def test_the_last_leader_leads_again_though_the_broker_in_the_elr_has_lost_records() -> None:
    """A partition whose last leader was killed would have no leader for ever: its broker is in the ELR until it says
    that it did not stop in order, and leads again only if it was noted as the last leader before that."""
    held = partition(1, 2, isr=(1,))
    alone = PartitionContext(alive=frozenset({2}), min_insync_replicas=2)
    gone = change(held, alone, isr=())
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (NO_LEADER, (), (1,), (1,))
    unclean = change(gone, alone, unclean=(1,))
    assert (unclean.leader, unclean.elr, unclean.last_known_elr) == (NO_LEADER, (), (1,))
    back = change(unclean, PartitionContext(alive=frozenset({1, 2}), min_insync_replicas=2))
    assert (back.leader, back.isr, back.last_known_elr) == (1, (1,), ())


@given(partitions(), contexts, st.sampled_from(Election), st.data())
def test_a_leader_has_all_that_was_committed_unless_an_election_is_unclean(
    before: PartitionImage, context: PartitionContext, election: Election, data: st.DataObject
) -> None:
    """Acknowledged records would be lost without anybody having allowed it."""
    isr = data.draw(st.sets(st.sampled_from(before.replicas)))
    after = change(before, context, election=election, isr=[each for each in before.replicas if each in isr])
    check_sound(before, after)
    if after.leader != NO_LEADER:
        assert is_alive(before, context, after.leader)
        # Those of an ELR count where the ISR is empty.
        is_clean = after.leader in (isr or {*before.isr, *before.elr})
        is_last = not isr and after.leader in (before.leader, *before.last_known_elr, *before.replicas[:1])
        may_be_unclean = election is Election.UNCLEAN or (election is Election.ONLINE and context.is_unclean_allowed)
        assert is_clean or is_last or may_be_unclean
    else:
        able = [each for each in after.replicas if is_alive(before, context, each)]
        assert not set(able) & set(after.isr or after.elr)
        assert not able or election is not Election.UNCLEAN


@given(partitions(), contexts)
def test_what_is_in_order_stays_as_it_is(before: PartitionImage, context: PartitionContext) -> None:
    """Every look at a partition would raise its epochs, and clients would fetch metadata without end."""
    settled = change(before, context)
    check_sound(before, settled)
    assert change(settled, context) is settled


@given(partitions(), contexts, st.sampled_from(NODES), st.integers(-1, 12), st.booleans())
def test_a_replica_that_is_lost_and_comes_back_raises_epochs_only(
    before: PartitionImage, context: PartitionContext, node_id: int, held_epoch: int, is_unclean: bool
) -> None:
    """A client would drop the metadata of a leader whose epoch went down, or a log would hold newer epochs than it."""
    if node_id not in before.replicas:
        return
    failed = replica_failed(before, node_id, context)
    check_sound(before, failed)
    assert node_id in failed.offline_replicas and failed.leader != node_id
    back = replica_returned(failed, node_id, held_epoch, is_unclean, context)
    check_sound(failed, back)
    assert node_id not in back.offline_replicas
    if back.leader == node_id:
        assert back.leader_epoch > held_epoch


def test_who_led_last_in_the_time_of_elrs_does_not_lead_without_them() -> None:
    """The second look at a partition would elect whom the first had passed over, which lacks what the ELR has."""
    context = PartitionContext(alive=frozenset({1}), has_elr=False)
    before = replace(partition(1, 2, 3), leader=-1, isr=(), elr=(3,), last_known_elr=(1,), offline_replicas=(2, 3))
    settled = change(before, context)
    assert (settled.leader, settled.elr) == (-1, ())
    assert change(settled, context) is settled


def test_the_only_replica_leads_again_whatever_has_become_of_it() -> None:
    """A single node would be without its partitions for ever after a crash."""
    alone = PartitionContext(alive=frozenset({1}))
    one = partition(1)
    lost = replica_failed(one, 1, alone)
    assert (lost.leader, lost.isr, lost.elr, lost.leader_epoch) == (NO_LEADER, (), (1,), 6)
    back = replica_returned(lost, 1, 5, False, alone)
    assert (back.leader, back.isr, back.elr, back.leader_epoch) == (1, (1,), (), 7)
    unclean = replica_returned(lost, 1, 9, True, alone)
    assert (unclean.leader, unclean.isr, unclean.leader_epoch) == (1, (1,), 10)
    old = PartitionImage(0, NO_LEADER, 6, (1,), (), 8)
    assert replica_returned(old, 1, 5, False, alone).leader == 1


def test_replicas_that_leave_a_small_isr_may_lead_later_and_others_not() -> None:
    """After the last of the ISR is gone, a replica that lacks records would lead."""
    start = partition(1, 2, 3, isr=(1, 2))
    shrunk = change(start, ALL, isr=[1])
    assert (shrunk.isr, shrunk.elr) == ((1,), (2,))
    gone = change(shrunk, replace(ALL, alive=frozenset({3})), isr=[])
    assert (gone.leader, gone.isr, set(gone.elr)) == (NO_LEADER, (), {1, 2})
    back = change(gone, replace(ALL, alive=frozenset({2, 3})))
    assert (back.leader, back.isr, back.elr) == (2, (2,), (1,))
    full = change(back, ALL, isr=[2, 3])
    assert full.elr == ()


def test_a_replica_in_the_elr_leads_only_where_the_isr_is_empty() -> None:
    """A leader in the ELR lacks what the one in sync has had acknowledged since."""
    shrunk = change(partition(1, 2, 3, isr=(1, 2)), ALL, isr=[1])
    assert (shrunk.isr, shrunk.elr) == ((1,), (2,))
    offline = replace(shrunk, offline_replicas=(1,))
    waits = change(offline, ALL)
    assert (waits.leader, waits.isr, waits.elr) == (NO_LEADER, (1,), (2,))
    empty = change(offline, ALL, isr=[])
    assert (empty.leader, empty.isr, empty.elr) == (2, (2,), (1,))


def test_an_elr_from_the_time_when_there_were_elrs_leads_where_the_isr_is_empty() -> None:
    """A partition would have no leader for good once the feature's level is lowered."""
    left = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), elr=(2, 3))
    found = change(left, replace(ALL, has_elr=False))
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_nobody_is_eligible_besides_an_unclean_leader() -> None:
    """One that left the ISR before an unclean election would count as having what is written after that."""
    held = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), elr=(1,))
    found = change(held, replace(ALL, alive=frozenset({3}), is_unclean_allowed=True))
    assert (found.leader, found.isr, found.elr) == (3, (3,), ())


def test_a_preferred_election_is_never_unclean() -> None:
    """kafka-leader-election, and the balancing of leaders, would lose records of topics that allow unclean elections
    for the case that nobody else is left."""
    allowed = replace(ALL, alive=frozenset({1, 3}), is_unclean_allowed=True)
    leaderless = partition(1, 2, 3, leader=NO_LEADER, isr=(2,))
    with pytest.raises(PreferredLeaderNotAvailableError):
        elect(leaderless, ElectionType.PREFERRED, allowed)
    assert change(leaderless, allowed).leader == 1


def test_a_preferred_election_that_finds_another_leader_is_one() -> None:
    """Kafka answers without an error where the election has changed something."""
    leaderless = partition(1, 2, 3, leader=NO_LEADER, isr=(2, 3))
    assert elect(leaderless, ElectionType.PREFERRED, replace(ALL, alive=frozenset({2, 3}))).leader == 2


def test_a_reassignment_is_never_unclean() -> None:
    """Who moves a partition does not say that its records may go."""
    allowed = replace(ALL, alive=frozenset({3, 4}), is_unclean_allowed=True)
    moving = reassign(partition(1, 2, leader=NO_LEADER, isr=(1,)), [3, 4], NODES, allowed, True)
    assert (moving.leader, moving.isr) == (NO_LEADER, (1,))


@pytest.mark.parametrize(
    ("replicas", "isr", "target", "joins", "done"),
    [
        ((1, 2, 3), (1, 2), (1, 3), (), None),  # A swap that takes a copy, while another lags.
        ((1, 2, 3), (1, 2), (1, 3), (3,), (1, 3)),
        ((1, 2, 3, 4), (1, 2, 3), (1, 4), (), None),
        ((1, 2, 3, 4), (1, 2, 3), (1, 4), (4,), (1, 4)),
        ((1, 2, 3), (1, 2), (3, 4), (4,), None),
        ((1, 2, 3), (1, 2), (3, 4), (4, 3), (3, 4)),
        ((2, 3, 4, 1), (1,), (2, 3, 4), (2,), None),
        ((1, 2, 3), (1, 2, 3), (2, 3), (), (2, 3)),
        ((1, 2, 3), (1,), (1, 2, 4), (4,), (1, 4)),  # As many to add as to remove: those alone count.
        ((1, 2), (1, 2), (3, 4), (3,), None),
        ((1, 2), (1, 2), (3, 4), (3, 4), (3, 4)),
    ],
)
def test_a_reassignment_gives_up_copies_when_those_that_stay_are_in_sync(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    target: tuple[int, ...],
    joins: tuple[int, ...],
    done: tuple[int, ...] | None,
) -> None:
    """Acknowledged records would be on one broker alone, and gone with its disk, though two more had them."""
    moving = reassign(partition(*replicas, leader=isr[0], isr=isr), target, NODES, ALL, True)
    for each in joins:
        moving = change(moving, ALL, isr=(*moving.isr, each))
    assert is_reassigning(moving) == (done is None)
    if done is None:
        assert set(moving.replicas) == {*replicas, *target} and set(isr) <= set(moving.isr)
    else:
        assert (set(moving.isr), set(moving.replicas)) == (set(done), set(target))


def test_a_second_reassignment_begins_with_the_replicas_that_are_there() -> None:
    """As Kafka 4.3.1 was seen to write it: what the first was to add stays a replica until the end."""
    first = reassign(partition(1), [1, 2, 3], NODES, ALL, True)
    assert (first.replicas, first.adding_replicas, first.removing_replicas) == ((1, 2, 3), (2, 3), ())
    second = reassign(first, [1, 2, 4], NODES, ALL, True)
    assert (second.replicas, second.adding_replicas, second.removing_replicas) == ((1, 2, 4, 3), (4,), (3,))
    done = change(second, ALL, isr=(1, 4))
    assert (done.replicas, done.isr, is_reassigning(done)) == ((1, 2, 4), (1, 4), False)


def test_a_reassignment_to_the_replicas_that_are_there_ends_the_one_under_way() -> None:
    """What was to be removed would go all the same, though the last request names it."""
    first = reassign(partition(1), [2], NODES, ALL, True)
    assert (first.replicas, first.adding_replicas, first.removing_replicas) == ((2, 1), (2,), (1,))
    stays = reassign(first, [1, 2], NODES, ALL, True)
    assert (stays.replicas, stays.isr, is_reassigning(stays)) == ((1, 2), (1,), False)


def test_a_reassignment_is_called_off_uncleanly_only_where_the_topic_allows_it() -> None:
    """Records that only the new replicas have would go without anybody having allowed it."""
    moving = replace(reassign(partition(1), [2, 3], NODES, ALL, True), isr=(2,), leader=2)
    with pytest.raises(InvalidReplicaAssignmentError):
        call_off(moving, ALL)
    back = call_off(moving, replace(ALL, is_unclean_allowed=True))
    assert (back.replicas, back.isr, back.leader, is_reassigning(back)) == ((1,), (1,), 1, False)


@given(partitions(), contexts, st.data())
def test_a_reassignment_never_leaves_fewer_copies_than_there_were_or_are_to_be(
    start: PartitionImage, context: PartitionContext, data: st.DataObject
) -> None:
    """The sum of Kafka's rules: a replica goes when those that stay are all in sync, or as many have joined the ISR for
    good as go."""
    assume(start.isr)  # An election beside the ISR takes its one member for all that there is.
    context = replace(context, is_unclean_allowed=False)
    wanted = data.draw(st.permutations(NODES))[: data.draw(st.integers(1, 4))]
    moving = reassign(start, wanted, NODES, context, True)
    for _ in range(data.draw(st.integers(0, 3))):
        before = moving
        isr = [each for each in moving.replicas if each in moving.isr or data.draw(st.booleans())]
        moving = change(moving, context, isr=isr)
        check_sound(before, moving)
        if is_reassigning(before) and not is_reassigning(moving):
            stay = set(before.replicas) - set(before.removing_replicas)
            joined = set(before.adding_replicas) - set(before.isr)
            is_level = len(before.adding_replicas) >= len(before.removing_replicas)
            assert set(moving.replicas) == stay
            assert stay <= {*isr} or (is_level and set(before.adding_replicas) <= {*isr} and joined)
        elif is_reassigning(before):
            assert set(moving.replicas) == set(before.replicas)


def test_without_elr_the_last_isr_is_kept() -> None:
    """Whoever was last in sync would be forgotten, and any replica could lead."""
    context = PartitionContext(alive=frozenset({3}), min_insync_replicas=2, has_elr=False)
    gone = change(partition(1, 2, 3, isr=(1,)), context, isr=[])
    assert (gone.leader, gone.isr, gone.elr) == (NO_LEADER, (1,), ())


@pytest.mark.parametrize(
    ("request_", "node_id", "error"),
    [
        (IsrChange(NAME, 6, 7, [(1, -1)]), 1, NotControllerError),
        (IsrChange(NAME, 5, 8, [(1, -1)]), 1, NotControllerError),
        (IsrChange(NAME, 4, 7, [(1, -1)]), 1, FencedLeaderEpochError),
        (IsrChange(NAME, 5, 7, [(1, -1)]), 2, InvalidRequestError),
        (IsrChange(NAME, 5, 6, [(1, -1)]), 1, InvalidUpdateVersionError),
        (IsrChange(NAME, 5, 7, [(2, -1)]), 1, InvalidRequestError),
        (IsrChange(NAME, 5, 7, []), 1, InvalidRequestError),
        (IsrChange(NAME, 5, 7, [(1, -1), (1, -1)]), 1, InvalidRequestError),
        (IsrChange(NAME, 5, 7, [(1, -1), (4, -1)]), 1, InvalidRequestError),
        (IsrChange(NAME, 5, 7, [(1, -1), (3, -1)]), 1, IneligibleReplicaError),
        (IsrChange(NAME, 5, 7, [(1, -1), (2, 8)]), 1, IneligibleReplicaError),
    ],
)
def test_an_isr_is_taken_only_from_the_leader_that_knows_the_partition(
    request_: IsrChange, node_id: int, error: type[KafkaError]
) -> None:
    """A leader of the past would put itself, or replicas that are gone, into the ISR."""
    context = PartitionContext(alive=frozenset({1, 2}))
    with pytest.raises(error):
        take_isr(partition(1, 2, 3), node_id, request_, context, {1: 3, 2: 9, 3: 9})


def test_the_leader_changes_its_isr() -> None:
    """Followers that lag would hold up every producer, and those that caught up would count for nothing."""
    changed = take_isr(partition(1, 2, 3), 1, IsrChange(NAME, 5, 7, [(1, 3), (3, 9)]), ALL, {1: 3, 3: 9})
    assert (changed.leader, changed.isr, changed.leader_epoch, changed.partition_epoch) == (1, (1, 3), 5, 8)


def test_elections_are_held_where_they_are_needed() -> None:
    """kafka-leader-election would move leaders that are right, or lose records that nobody allowed it to lose."""
    with pytest.raises(ElectionNotNeededError):
        elect(partition(1, 2), ElectionType.PREFERRED, ALL)
    with pytest.raises(ElectionNotNeededError):
        elect(partition(1, 2), ElectionType.UNCLEAN, ALL)
    assert elect(partition(1, 2, leader=2), ElectionType.PREFERRED, ALL).leader == 1
    with pytest.raises(PreferredLeaderNotAvailableError):
        elect(partition(1, 2, leader=2, isr=(2,)), ElectionType.PREFERRED, ALL)
    leaderless = replace(partition(1, 2, 3, leader=NO_LEADER, isr=(1,)), elr=())
    only_3 = replace(ALL, alive=frozenset({3}))
    assert elect(leaderless, ElectionType.UNCLEAN, only_3).leader == 3
    with pytest.raises(EligibleLeadersNotAvailableError):
        elect(leaderless, ElectionType.UNCLEAN, replace(ALL, alive=frozenset()))


@given(partitions(), contexts, st.data())
def test_a_reassignment_ends_with_the_wanted_replicas_or_the_former_ones(
    start: PartitionImage, context: PartitionContext, data: st.DataObject
) -> None:
    """Replicas would be dropped before the new ones have their records, or never."""
    wanted = data.draw(st.permutations(NODES))[: data.draw(st.integers(1, 4))]
    try:
        moving = reassign(start, wanted, NODES, context, True)
    except InvalidReplicaAssignmentError:
        return
    check_sound(start, moving)
    assert set(target_replicas(moving)) == set(wanted)
    if not is_reassigning(moving):
        return
    assert set(former_replicas(moving)) == set(start.replicas)  # None was on the move before.
    done = change(moving, replace(context, alive=frozenset(NODES)), isr=moving.replicas)
    check_sound(moving, done)
    assert done.replicas == tuple(wanted) and not is_reassigning(done)
    try:
        back = call_off(moving, context)
    except InvalidReplicaAssignmentError:
        return
    check_sound(moving, back)
    assert set(back.replicas) == set(start.replicas) and not is_reassigning(back)


def test_reassignments_that_cannot_be_are_refused() -> None:
    """A partition would be left without a replica that has its records."""
    with pytest.raises(NoReassignmentInProgressError):
        call_off(partition(1, 2), ALL)
    with pytest.raises(InvalidReplicationFactorError, match="from 2 to 1"):
        reassign(partition(1, 2), [1], NODES, ALL, False)
    with pytest.raises(InvalidReplicaAssignmentError, match="no such broker"):
        reassign(partition(1, 2), [9], NODES, ALL, True)
    same = partition(1, 2)
    assert reassign(same, [1, 2], NODES, ALL, False) is same


@given(st.lists(partitions(), max_size=4), contexts, st.sampled_from(NODES))
def test_a_broker_that_is_gone_leads_nothing(
    before: list[PartitionImage], context: PartitionContext, node_id: int
) -> None:
    """Clients would be sent to a broker that does not exist any more."""
    left = replace(context, alive=frozenset(context.alive) - {node_id}, has_elr=True)
    numbered = [replace(each, partition=index) for index, each in enumerate(before)]
    changed = {each.partition: each for each in without_broker(numbered, node_id, left)}
    for each in numbered:
        after = changed.get(each.partition, each)
        check_sound(each, after)
        assert node_id not in after.isr and after.leader != node_id
