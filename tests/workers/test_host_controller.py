"""Workers that come and go: who leads then, in which epoch, and what is stored of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.requests import BrokerEpoch, HeldLog, IsrChange, NewTopic, ReplicaReport
from kbroker.cluster.stored_image import stored_image
from kbroker.config import BrokerConfig
from kbroker.errors import InvalidReplicationFactorError, KafkaError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.difference import difference
from kbroker.metadata.image import ClusterImage
from kbroker.replication.leader_changes import NO_LOG
from kbroker.types import TopicPartition
from tests.restarts import started_again
from tests.unbroken import finished
from tests.workers.host import Host

FIRST = TopicPartition("t", 0)
Start = Callable[[], Host]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    """Starts the controller, again each time."""
    yield from started_again(lambda: Host(tmp_path))


@pytest.fixture
def host(start: Start) -> Host:
    """Three workers."""
    found = start()
    for node_id in (1, 2, 3):
        found.enter(node_id)
    return found


def test_leaders_are_spread_evenly(host: Host) -> None:
    """One worker would have all the work, and the others' cores would idle."""
    host.create("t", 9, 1)
    host.create("u", 1, 1)
    host.create("v", 1, 1)
    assert sorted(host.leaders("t")) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert host.leaders("u") != host.leaders("v")


def test_the_replication_factor_is_bounded_as_in_a_cluster(host: Host) -> None:
    """A topic would be made with fewer copies than were asked for."""
    host.create("t", 1, 3)
    (outcome,) = finished(host.controller.create_topics([NewTopic("u", 1, 4)]))
    assert isinstance(outcome.error, InvalidReplicationFactorError)


def test_a_partition_of_a_worker_that_is_gone_comes_back_with_it(host: Host) -> None:
    """A topic with one replica would stay without a leader, or another worker would lead it with an empty log."""
    host.create("t", 3, 1)
    index = host.leaders("t").index(2)
    finished(host.controller.lost(BrokerEpoch(2, 0)))
    assert host.cache.image.brokers[2].is_fenced
    assert host.partition("t", index).leader == -1
    away = host.partition("t", index).leader_epoch
    host.enter(2, ReplicaReport(online={TopicPartition("t", index): 4}))
    assert host.partition("t", index).leader == 2
    assert host.partition("t", index).leader_epoch == max(away + 1, 5)
    assert host.partition("t", index).isr == (2,)


def test_a_replica_whose_disk_is_back_is_there_again_with_the_next_start_of_its_worker(host: Host) -> None:
    """It would be offline, and copy nothing, until the controller itself is started anew."""
    host.create("t", 2, 3)
    follower = next(each for each in (2, 3) if each not in host.leaders("t"))
    epoch = host.cache.image.brokers[follower].epoch
    both = frozenset({FIRST, TopicPartition("t", 1)})
    finished(host.controller.report_replicas(BrokerEpoch(follower, epoch), ReplicaReport(offline=both)))
    assert host.partition("t").offline_replicas == (follower,)
    finished(host.controller.lost(BrokerEpoch(follower, epoch)))
    host.enter(follower, ReplicaReport(offline=frozenset({FIRST})))
    assert host.partition("t").offline_replicas == (follower,)
    assert host.partition("t", 1).offline_replicas == ()


def test_another_replica_leads_at_once_and_the_isr_has_one_less(host: Host) -> None:
    """Producers with acks=all would wait for a worker that is dead."""
    host.create("t", 1, 3)
    before = host.partition("t")
    finished(host.controller.lost(BrokerEpoch(before.leader, 0)))
    after = host.partition("t")
    assert after.leader in before.isr
    assert after.leader != before.leader
    assert set(after.isr) == set(before.isr) - {before.leader}
    assert after.leader_epoch == before.leader_epoch + 1


def test_the_end_of_an_old_connection_is_not_that_of_the_worker(host: Host) -> None:
    """A worker that is back would lose its leaders to the news of its earlier death."""
    host.create("t", 3, 1)
    assert host.enter(2).epoch == 1
    before = host.cache.image
    finished(host.controller.lost(BrokerEpoch(2, 0)))
    assert host.cache.image is before


def test_nothing_moves_when_the_host_stops(host: Host, start: Start) -> None:
    """Each start would find the last worker of the stop as the leader of all."""
    host.create("t", 6, 3)
    before = host.cache.image.topics
    host.is_stopping = True
    assert finished(host.controller.controlled_shutdown(BrokerEpoch(3, 0))) == []
    for node_id in (2, 3):
        finished(host.controller.lost(BrokerEpoch(node_id, 0)))
    assert host.cache.image.topics == before
    host.store.close()
    assert start().cache.image.topics == before


def test_one_worker_that_stops_in_order_hands_its_leaders_over_first(host: Host) -> None:
    """Its clients would meet a closed port before there is another leader."""
    host.create("t", 6, 2)
    finished(host.controller.controlled_shutdown(BrokerEpoch(3, 0)))
    assert 3 not in host.leaders("t")
    assert -1 not in host.leaders("t")


def test_what_a_worker_led_that_does_not_come_back_is_led_by_others(host: Host, start: Start) -> None:
    """The controller died with it, and has never seen it go."""
    host.create("t", 3, 2)
    host.store.close()
    again = start()
    again.enter(1)
    again.enter(2)
    finished(again.controller.missing(3))
    assert set(again.leaders("t")) == {1, 2}


def after_power_cut(start: Start, held: dict[int, HeldLog]) -> Host:
    """The next controller, which has been told what workers hold of the first partition; none has come."""
    again = start()
    again.enter(1)
    finished(again.controller.report_logs({node_id: {FIRST: log} for node_id, log in held.items()}))
    return again


def test_a_replica_that_has_lost_records_does_not_lead_one_that_has_them(host: Host, start: Start) -> None:
    """Committed records would be truncated away where they are, to be level with a log that has lost them."""
    host.create("t", 1, 3)
    before = host.partition("t")
    host.store.close()
    leader, *others = before.replicas
    held = {leader: HeldLog(0, 60, True), others[0]: HeldLog(0, 80, True), others[1]: HeldLog(0, 100, True)}
    again = after_power_cut(start, held)
    after = again.partition("t")
    assert (after.leader, after.isr, after.elr) == (others[1], (others[1],), ())
    assert after.leader_epoch == before.leader_epoch + 1
    for node_id in (2, 3):
        again.enter(node_id)
    assert again.partition("t").leader == others[1]
    again.store.close()
    assert start().partition("t") == again.partition("t")


def test_a_newer_epoch_counts_for_more_than_a_longer_log(host: Host, start: Start) -> None:
    """What was never committed would come back in the place of what was."""
    host.create("t", 1, 2)
    leader, other = host.partition("t").replicas
    host.store.close()
    after = after_power_cut(start, {leader: HeldLog(0, 100, True), other: HeldLog(4, 60, True)}).partition("t")
    assert (after.leader, after.leader_epoch) == (other, 5)


def test_a_leader_that_lost_nothing_stays_and_one_that_stopped_in_order_too(host: Host, start: Start) -> None:
    """Each kill of all workers would move leaders about; records that only the leader had yet are no loss."""
    host.create("t", 1, 2)
    before = host.partition("t")
    leader, other = before.replicas
    host.store.close()
    after = after_power_cut(start, {leader: HeldLog(0, 100, True), other: HeldLog(0, 100, True)})
    assert (after.partition("t").leader, after.partition("t").isr) == (leader, before.isr)
    after.store.close()
    after = after_power_cut(start, {leader: HeldLog(0, 100, False), other: HeldLog(0, 90, False)})
    assert (after.partition("t").leader, after.partition("t").isr) == (leader, before.isr)
    after.store.close()
    after = after_power_cut(start, {leader: HeldLog(0, 100, True), other: HeldLog(0, 90, True)})
    assert (after.partition("t").leader, after.partition("t").isr) == (leader, (leader,))


def test_the_only_replica_leads_whatever_it_has_lost(host: Host, start: Start) -> None:
    """A topic with one replica would stay without a leader after a power cut."""
    host.create("t", 1, 1)
    before = host.partition("t")
    host.store.close()
    again = after_power_cut(start, {before.leader: HeldLog(0, 0, True)})
    assert again.partition("t").leader == before.leader
    assert again.partition("t").isr == before.isr


def test_a_partition_whose_log_nobody_has_made_yet_keeps_its_leader(host: Host, start: Start) -> None:
    """Topics that were made right before a power cut would be without a leader for good."""
    host.create("t", 1, 2)
    before = host.partition("t")
    host.store.close()
    after = after_power_cut(start, dict.fromkeys(before.replicas, NO_LOG)).partition("t")
    assert (after.leader, after.isr) == (before.leader, before.isr)


@pytest.mark.parametrize("known", [True, False])
def test_one_without_a_log_does_not_lead_while_another_may_have_one(host: Host, start: Start, known: bool) -> None:
    """A disk that is empty would make all replicas empty."""
    host.create("t", 1, 2)
    leader, other = host.partition("t").replicas
    host.store.close()
    held = {leader: NO_LOG, **({other: HeldLog(0, 0, True)} if known else {})}
    after = after_power_cut(start, held).partition("t")
    assert (after.leader in (other, -1), after.isr) == (True, (other,))


@pytest.mark.parametrize("has_come", [True, False])
def test_one_that_lacks_its_end_does_not_lead_while_another_has_it(host: Host, start: Start, has_come: bool) -> None:
    """After a clean stop, too, the others would cut their logs to its end: one that has come, and one that is about
    to."""
    host.create("t", 1, 3)
    before = host.partition("t")
    leader, *others = before.replicas
    host.store.close()
    held = {leader: HeldLog(0, 80, False, is_cut=True)}
    if has_come:
        held.update({each: HeldLog(0, 100, False) for each in others})
    after = after_power_cut(start, held).partition("t")
    assert (set(after.isr), after.leader in {*others, -1}) == (set(others), True)
    assert after.leader_epoch == before.leader_epoch + 1


def test_of_those_that_all_lack_their_ends_the_one_with_most_leads(host: Host, start: Start) -> None:
    """A partition would have no leader, or lose more than it has to."""
    host.create("t", 1, 2)
    leader, other = host.partition("t").replicas
    host.store.close()
    held = {leader: HeldLog(0, 80, False, is_cut=True), other: HeldLog(0, 90, False, is_cut=True)}
    after = after_power_cut(start, held).partition("t")
    assert (after.leader, after.isr) == (other, (other,))


def test_one_that_lacks_its_end_leads_where_no_other_is_in_sync(host: Host, start: Start) -> None:
    """A partition would have no leader for good."""
    host.create("t", 1, 2)
    leader, other = host.partition("t").replicas
    finished(host.controller.lost(BrokerEpoch(other, 0)))
    host.store.close()
    after = after_power_cut(start, {leader: HeldLog(0, 80, False, is_cut=True)}).partition("t")
    assert (after.leader, after.isr) == (leader, (leader,))


def test_one_that_is_out_of_the_isr_does_not_lead_for_its_long_log(host: Host, start: Start) -> None:
    """What it holds beyond the others was refused to producers, or is of an old leader."""
    host.create("t", 1, 3)
    leader, other, gone = host.partition("t").replicas
    finished(host.controller.lost(BrokerEpoch(gone, 0)))
    host.store.close()
    held = {each: HeldLog(0, 50, True) for each in (leader, other)}
    after = after_power_cut(start, {**held, gone: HeldLog(0, 100, True)}).partition("t")
    assert after.leader in (leader, other)
    assert set(after.isr) == {leader, other}


def test_a_worker_that_comes_back_to_a_new_controller_keeps_its_epoch(host: Host, start: Start) -> None:
    """Its changes of ISRs that are under way would be refused, and its followers taken for those of another life."""
    host.create("t", 3, 3)
    host.store.close()
    again = start()
    again.enter(1)
    before = again.cache.image.topics
    assert again.enter(2, epoch=0) == BrokerEpoch(2, 0)
    assert again.cache.image.topics == before


steps = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from((1, 2, 3)), st.booleans()),
        st.tuples(st.just("lose"), st.sampled_from((2, 3))),
        st.tuples(st.just("create"), st.sampled_from("abc"), st.integers(1, 3)),
        st.tuples(st.just("isr"), st.sampled_from("abc"), st.sets(st.sampled_from((1, 2, 3)))),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


def play(host: Host, step: tuple[object, ...], directory: Path) -> Host:
    """One step; the host from then on."""
    match step:
        case ("enter", int(node_id), bool(is_again)):
            known = host.cache.image.brokers.get(node_id)
            host.enter(node_id, epoch=known.epoch if known is not None and is_again else -1)
        case ("lose", int(node_id)):
            known = host.cache.image.brokers.get(node_id)
            if known is not None:
                finished(host.controller.lost(BrokerEpoch(node_id, known.epoch)))
        case ("create", str(name), int(replication_factor)):
            finished(host.controller.create_topics([NewTopic(name, 2, replication_factor)]))
        case ("isr", str(name), set(isr)):
            topic = host.cache.image.topics.get(name)
            if topic is not None:
                each = topic.partitions[0]
                wanted = IsrChange(
                    TopicPartition(name, 0), each.leader_epoch, each.partition_epoch, [(member, -1) for member in isr]
                )
                leader = host.cache.image.brokers.get(each.leader)
                try:
                    finished(
                        host.controller.alter_partitions(
                            BrokerEpoch(each.leader, -1 if leader is None else leader.epoch), [wanted]
                        )
                    )
                except KafkaError:
                    pass
        case ("restart",):
            host.store.close()
            host = Host(directory)
    return host


def check(image: ClusterImage, before: ClusterImage) -> None:
    """What holds at any moment."""
    alive = {broker.node_id for broker in image.alive_brokers()}
    for topic in image.topics.values():
        old = before.topics.get(topic.name)
        for each in topic.partitions:
            assert set(each.isr) <= set(each.replicas)
            assert each.leader == -1 or each.leader in each.isr
            if old is not None:
                was = old.partitions[each.partition]
                assert each.leader_epoch >= was.leader_epoch
                if each.leader not in (-1, was.leader):
                    assert each.leader in alive
                    assert each.leader_epoch > was.leader_epoch


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_history_keeps_the_rules(history: list[tuple[object, ...]]) -> None:
    """Two leaders in one epoch, a leader outside of its ISR or one that is dead would lose records; a follower of the
    deltas, or the next start, would have another cluster."""
    # Hundreds of fsyncs, which no disk is needed for.
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        directory = Path(folder)
        host = Host(directory)
        follower = MetadataCache(host.cache.image)
        host.cache.subscribe(lambda _old, _new, delta: follower.apply(delta))
        for step in history:
            before = host.cache.image
            after = play(host, step, directory)
            check(after.cache.image, before)
            if after is not host:
                host = after
                follower.apply(difference(follower.image, host.cache.image))
                host.cache.subscribe(lambda _old, _new, delta: follower.apply(delta))
            assert (follower.image.topics, follower.image.brokers) == (
                host.cache.image.topics,
                host.cache.image.brokers,
            )
        stored = stored_image(host.store, BrokerConfig.from_mapping({}), 1)
        assert stored.topics == host.cache.image.topics
        host.store.close()
