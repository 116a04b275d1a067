"""What an elected controller does: every procedure of Kafka 3.9.1's, over the model of ZooKeeper.

Also of `kbroker.cluster.zookeeper.topic_deletion`, `kbroker.cluster.zookeeper.work`,
`kbroker.cluster.zookeeper.zookeeper_requests`.
"""

from __future__ import annotations

import asyncio
import json
import weakref

import pytest

from kbroker.cluster.requests import (
    BrokerEpoch,
    ElectionType,
    IsrChange,
    NewPartitions,
    Reassignment,
)
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.term import Work
from kbroker.errors import (
    ElectionNotNeededError,
    ErrorCode,
    FencedLeaderEpochError,
    InvalidUpdateVersionError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
)
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import T0, Cluster, brief, in_cluster, take_isr
from tests.garbage.uncollected import uncollected


def test_a_topics_znodes_are_kafkas_and_its_replicas_are_told() -> None:
    """Brokers of Kafka would not understand a topic, or replicas not serve it."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]], retention_ms="1000")
        assert cluster.ensemble.content("/config/topics/t") == b'{"version":1,"config":{"retention.ms":"1000"}}'
        assert cluster.ensemble.content("/brokers/topics/t/partitions/1/state") == (
            b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3,1]}'
        )
        topic = cluster.json("/brokers/topics/t")
        assert list(topic) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
        assert cluster.brokers[3].states[T0].is_new
        assert cluster.brokers[3].metadata[T0].leader == 1
        assert cluster.json(paths.FEATURE) == {"features": {}, "version": 2, "status": 1}
        with pytest.raises(TopicAlreadyExistsError):
            await cluster.create("t", [[1]])

    in_cluster(body)


def test_a_topic_that_another_broker_or_an_old_tool_writes_is_taken_up() -> None:
    """Topics that clients name on other brokers, and those of old tools, would never have leaders."""

    async def body(cluster: Cluster) -> None:
        other = cluster.ensemble.session()
        await other.create(paths.topic("t"), b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
        await cluster.settled()
        assert brief(cluster.state("t", 1)) == (2, 0, [2])
        assert len(cluster.json(paths.topic("t"))["topic_id"]) == 22
        content = cluster.json(paths.topic("t"))
        content["partitions"]["2"] = [3]
        await other.set(paths.topic("t"), json.dumps(content).encode())
        await cluster.settled()
        assert brief(cluster.state("t", 2)) == (3, 0, [3])

    in_cluster(body)


def test_a_topic_without_a_living_replica_waits_for_one() -> None:
    """A topic made while its brokers are away would stay without leaders for ever."""

    async def body(cluster: Cluster) -> None:
        other = cluster.ensemble.session()
        await other.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[4]}}')
        await cluster.settled()
        assert paths.state("t", 0) not in cluster.ensemble.nodes
        await cluster.come(4)
        await cluster.settled()
        assert brief(cluster.state("t")) == (4, 0, [4])

    in_cluster(body)


def test_isr_changes_are_refused_with_kafkas_errors() -> None:
    """A deposed leader, or a broker of an earlier life, would change an ISR."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3]])
        administration = cluster.office.administration
        one = cluster.epoch_of(1)

        async def ask(epoch: int, version: int, isr: list[int], broker: BrokerEpoch = one) -> object:
            change = IsrChange(T0, epoch, version, [(each, -1) for each in isr])
            (outcome,) = await administration.alter_partitions(broker, [change])
            return outcome.error

        assert await ask(0, 0, [1, 2]) is None
        assert await ask(0, 0, [1, 2]) is None
        assert isinstance(await ask(0, 0, [1, 3]), InvalidUpdateVersionError)
        assert await ask(0, 1, [1, 2, 3]) is None
        assert isinstance(await ask(-1, 2, [1]), FencedLeaderEpochError)
        error = await ask(0, 2, [1, 9])
        assert getattr(error, "code", None) == ErrorCode.INVALID_REQUEST
        cluster.go(3)
        await cluster.settled()
        error = await ask(1, 3, [1, 2, 3])
        assert getattr(error, "code", None) == ErrorCode.INELIGIBLE_REPLICA
        with pytest.raises(StaleBrokerEpochError):
            await ask(1, 3, [1], BrokerEpoch(1, one.epoch - 1))

    in_cluster(body)


def test_a_controlled_shutdown_moves_leaders_before_the_broker_goes() -> None:
    """Every rolling restart would make clients wait for a session to end."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 1, 3], [1, 2, 3]])
        await cluster.create("one", [[2]])
        remaining = await cluster.office.administration.controlled_shutdown(cluster.epoch_of(2))
        assert remaining == []
        assert brief(cluster.state("t", 0)) == (1, 1, [1, 3])
        assert brief(cluster.state("t", 1)) == (1, 1, [1, 3])
        assert brief(cluster.state("one")) == (2, 0, [2])
        assert (TopicPartition("t", 1), False) in cluster.brokers[2].stopped
        assert 2 in cluster.brokers[1].live
        cluster.go(3)
        await cluster.settled()
        assert brief(cluster.state("one")) == (2, 0, [2])
        cluster.go(2)
        await cluster.settled()
        assert brief(cluster.state("one")) == (-1, 1, [2])

    in_cluster(body)


def test_a_reassignment_adds_waits_and_removes() -> None:
    """Replicas would be deleted before the new ones have the records, or never."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 3]])
        administration = cluster.office.administration
        (outcome,) = await administration.alter_reassignments([Reassignment(T0, [1, 2])], True)
        assert outcome.error is None
        topic = cluster.json(paths.topic("t"))
        assert (topic["partitions"], topic["adding_replicas"], topic["removing_replicas"]) == (
            {"0": [1, 2, 3]},
            {"0": [1]},
            {"0": [3]},
        )
        assert brief(cluster.state("t")) == (2, 1, [2, 3])
        assert cluster.brokers[1].states[T0].is_new
        assert await take_isr(cluster, T0, [2, 3, 1]) == 0
        topic = cluster.json(paths.topic("t"))
        assert (topic["partitions"], topic["adding_replicas"], topic["removing_replicas"]) == ({"0": [1, 2]}, {}, {})
        assert brief(cluster.state("t")) == (2, 2, [2, 1])
        assert cluster.brokers[3].stopped == [(T0, False), (T0, True)]
        assert cluster.brokers[1].states[T0].replicas == [1, 2]

    in_cluster(body)


def test_a_reassignment_is_called_off() -> None:
    """A move to a broker that cannot keep up could not be ended."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 3]])
        administration = cluster.office.administration
        await administration.alter_reassignments([Reassignment(T0, [1, 2])], True)
        (outcome,) = await administration.alter_reassignments([Reassignment(T0, None)], True)
        assert outcome.error is None
        topic = cluster.json(paths.topic("t"))
        assert (topic["partitions"], topic["adding_replicas"]) == ({"0": [2, 3]}, {})
        assert cluster.brokers[1].stopped == [(T0, False), (T0, True)]

    in_cluster(body)


def test_a_request_is_decided_anew_where_others_have_written_meanwhile() -> None:
    """A tool would be answered that its update is of another version, which it cannot do anything about."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 3]])
        cluster.ensemble.nodes[paths.state("t", 0)].version += 1
        (outcome,) = await cluster.office.administration.alter_reassignments([Reassignment(T0, [1, 2])], True)
        assert outcome.error is None
        assert cluster.json(paths.topic("t"))["adding_replicas"] == {"0": [1]}
        assert cluster.brokers[1].states[T0].is_new
        assert await take_isr(cluster, T0, [2, 3, 1]) == 0
        assert cluster.json(paths.topic("t"))["partitions"] == {"0": [1, 2]}

    in_cluster(body)


def test_what_old_tools_wish_for_is_done() -> None:
    """Tools of Kafka before 2.4 would wait for ever."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 3], [2, 1]])
        other = cluster.ensemble.session()
        wish = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}'
        await other.create(paths.REASSIGN_PARTITIONS, wish)
        await cluster.settled()
        assert await take_isr(cluster, T0, [2, 3, 1]) == 0
        assert cluster.json(paths.topic("t"))["partitions"]["0"] == [2, 1]
        assert paths.REASSIGN_PARTITIONS not in cluster.ensemble.nodes
        cluster.go(2)
        await cluster.settled()
        await cluster.come(2)
        await cluster.settled()
        name = TopicPartition("t", 1)
        assert await take_isr(cluster, name, [1, 2]) == 0
        await other.create(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":1}]}')
        await cluster.settled()
        assert cluster.state("t", 1)["leader"] == 2
        assert paths.PREFERRED_ELECTION not in cluster.ensemble.nodes
        await other.create(paths.PREFERRED_ELECTION, b"nonsense")
        await cluster.settled()
        assert paths.PREFERRED_ELECTION not in cluster.ensemble.nodes

    in_cluster(body)


def test_a_deletion_waits_for_every_replica() -> None:
    """A broker that was away would come back with a topic that no longer exists, or its disk stay full."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2]])
        await cluster.create("u", [[1]])
        cluster.go(2)
        await cluster.settled()
        assert cluster.office.term is not None
        topics = cluster.office.term.context.image.topics
        administration = cluster.office.administration
        outcomes = await administration.delete_topics([topics["t"].topic_id, topics["u"].topic_id], None)
        assert [each.error for each in outcomes] == [None, None]
        await cluster.settled()
        # Asked again meanwhile, it is on its way, as in Kafka.
        (outcome,) = await administration.delete_topics([topics["t"].topic_id], None)
        assert (outcome.name, outcome.error) == ("t", None)
        assert cluster.brokers[1].metadata[T0].leader == -2
        assert (T0, True) in cluster.brokers[1].stopped
        assert cluster.ensemble.children_of(paths.TOPICS) == ["t"]
        assert cluster.ensemble.children_of(paths.DELETE_TOPICS) == ["t"]
        await cluster.come(2)
        await cluster.settled()
        assert (T0, True) in cluster.brokers[2].stopped
        assert cluster.ensemble.children_of(paths.TOPICS) == []
        assert cluster.ensemble.children_of(paths.DELETE_TOPICS) == []
        assert cluster.ensemble.children_of("/config/topics") == []
        await cluster.create("t", [[1]])
        assert brief(cluster.state("t")) == (1, 0, [1])

    in_cluster(body)


def test_partitions_are_added() -> None:
    """A topic could not grow."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2]])
        (outcome,) = await cluster.office.administration.create_partitions(
            [NewPartitions("t", 2, [[3, 1]])], False, None
        )
        assert outcome.error is None
        await cluster.settled()
        assert brief(cluster.state("t", 1)) == (3, 0, [3, 1])
        assert cluster.json(paths.topic("t"))["partitions"] == {"0": [1, 2], "1": [3, 1]}

    in_cluster(body)


def test_a_failed_directory_takes_its_replicas_offline() -> None:
    """A partition would be led by a broker whose disk is gone."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 1], [2, 1]])
        cluster.brokers[2].failed.add(T0)
        other = cluster.ensemble.session()
        await other.create(paths.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":2,"event":1}', sequential=True)
        await cluster.settled()
        assert brief(cluster.state("t", 0)) == (1, 1, [1])
        assert brief(cluster.state("t", 1)) == (2, 0, [2, 1])
        assert cluster.brokers[1].metadata[T0].offline_replicas == [2]
        assert cluster.ensemble.children_of(paths.LOG_DIR_EVENTS) == []
        cluster.brokers[2].failed.clear()
        cluster.go(2)
        await cluster.settled()
        await cluster.come(2)
        await cluster.settled()
        assert cluster.brokers[1].metadata[T0].offline_replicas == []

    in_cluster(body)


def test_isrs_that_leaders_of_old_kafkas_write_are_taken_up() -> None:
    """Brokers would not learn of an ISR, and the controller's next write would fail."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2]])
        other = cluster.ensemble.session()
        await other.set(
            paths.state("t", 0), b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}', 0
        )
        await other.create(
            paths.ISR_CHANGE_PREFIX, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}', sequential=True
        )
        await cluster.settled()
        assert cluster.brokers[2].metadata[T0].isr == [1]
        assert cluster.ensemble.children_of(paths.ISR_CHANGES) == []
        await other.set(
            paths.state("t", 0), b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}', 1
        )
        # The notification is late: the controller's own write finds another version, and reads it.
        cluster.go(1)
        await cluster.settled()
        assert brief(cluster.state("t")) == (2, 1, [2])

    in_cluster(body)


def test_producer_ids_are_never_given_twice() -> None:
    """Two producers would share an id, and one's records be taken for the other's repeats."""

    async def body(cluster: Cluster) -> None:
        administration = cluster.office.administration
        blocks = [await administration.allocate_producer_ids(cluster.epoch_of(each)) for each in (1, 2, 1)]
        assert [block.first_id for block in blocks] == [0, 1000, 2000]
        assert cluster.ensemble.content(paths.PRODUCER_ID_BLOCK) == (
            b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
        )

    in_cluster(body)


def test_leaders_go_back_to_brokers_that_should_have_more() -> None:
    """After a rolling restart one broker would lead everything."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2], [2, 1]])
        cluster.go(2)
        await cluster.settled()
        await cluster.come(2)
        await cluster.settled()
        for index in range(2):
            assert await take_isr(cluster, TopicPartition("t", index), [1, 2]) == 0
        assert cluster.state("t", 1)["leader"] == 1
        assert cluster.office.term is not None
        await cluster.office.term._balance()
        assert cluster.state("t", 1)["leader"] == 2
        assert cluster.state("t", 0)["leader"] == 1

    in_cluster(body)


def test_nonsense_in_znodes_is_left_out_and_named() -> None:
    """A znode that a person has edited would stop the controller of the whole cluster."""

    async def body(cluster: Cluster) -> None:
        other = cluster.ensemble.session()
        await other.create(f"{paths.BROKER_IDS}/7", b'{"version":5}')
        await other.create(paths.topic("bad"), b"{}")
        await other.create(f"{paths.TOPICS}/odd", b'{"version":1,"partitions":{"5":[1]}}')
        await other.create(paths.LOG_DIR_EVENT_PREFIX, b"[]", sequential=True)
        await other.create(paths.ISR_CHANGE_PREFIX, b"", sequential=True)
        await cluster.settled()
        await cluster.create("t", [[1, 2, 3]])
        assert cluster.office.term is not None
        assert set(cluster.office.term.reader.nonsense) >= {"/brokers/ids/7", "/brokers/topics/bad"}
        assert cluster.brokers[1].live == [1, 2, 3]
        await other.set(paths.topic("bad"), b'{"version":1,"partitions":{"0":[1]}}')
        await cluster.settled()
        assert brief(cluster.state("bad")) == (1, 0, [1])

    in_cluster(body)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_state_that_makes_no_sense_is_left_alone_until_an_administrator_asks(
    is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller would write it in a loop without end, with a warning each time, and nobody could mend it."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        first, path = cluster.office, paths.state("t", 0)
        await cluster.ensemble.session().set(path, b"nonsense")
        if not is_known:
            first.session.suspend()
            first.session.drop()
        cluster.go(1)
        await cluster.settled()
        office = cluster.office
        assert cluster.ensemble.content(path) == b"nonsense"
        assert brief(cluster.state("t", 1)) == (2, 1, [2, 3])
        assert sum(path in each.message and "makes no sense" in each.message for each in caplog.records) == 1
        assert office.term is not None
        office.term.work.mark(Work.BALANCE)
        await cluster.settled()
        assert sum("changed by others" in each.message for each in caplog.records) == 0
        (outcome,) = await office.administration.elect_leaders(ElectionType.UNCLEAN, [T0])
        await cluster.settled()
        # What the controller knows it writes again, and a clean election is enough.
        assert type(outcome.error) is (ElectionNotNeededError if is_known else type(None))
        version = cluster.ensemble.nodes[path].version
        # In an epoch that no replica has seen.
        assert brief(cluster.state("t", 0)) == ((2, 1, [2, 3]) if is_known else (2, version, [2]))
        assert cluster.brokers[2].states[T0].leader == 2
        assert path not in office.term.reader.nonsense

    in_cluster(body, offices=1 if is_known else 2)


def test_a_successor_goes_on_with_what_was_begun() -> None:
    """A reassignment or a deletion under way would be forgotten when the controller dies."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[2, 3]])
        await cluster.create("gone", [[3]])
        first = cluster.office
        await first.administration.alter_reassignments([Reassignment(T0, [1, 2])], True)
        cluster.go(3)
        await cluster.settled()
        assert first.term is not None
        await first.administration.delete_topics([first.term.context.image.topics["gone"].topic_id], None)
        first.session.suspend()
        first.session.drop()
        await cluster.settled()
        second = cluster.office
        assert second is not first
        assert second.terms[0].epoch == 2
        assert await take_isr(cluster, T0, [2, 1]) == 0
        assert cluster.json(paths.topic("t"))["partitions"] == {"0": [1, 2]}
        await cluster.come(3)
        await cluster.settled()
        assert cluster.ensemble.children_of(paths.TOPICS) == ["t"]
        first.session.resume()
        await cluster.settled()
        assert cluster.office is second

    in_cluster(body, offices=2)


def test_a_lost_connection_costs_what_happened_meanwhile_and_no_more() -> None:
    """The controller would miss a broker that died while it was cut off from ZooKeeper."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3]])
        office = cluster.office
        office.session.suspend()
        assert not office.is_active
        cluster.go(1)
        await cluster.settled()
        office.session.resume()
        await cluster.settled()
        await asyncio.sleep(0)
        assert [fence.epoch for fence in office.terms] == [1, 1]
        assert brief(cluster.state("t")) == (2, 1, [2, 3])

    in_cluster(body)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_term_that_has_ended_is_freed_with_its_last_reference(is_lost: bool) -> None:
    """All that it knew of the cluster would stay as a cycle, of each election once more.

    `is_lost`: the session ends, else the term alone."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        cluster.brokers[3].failed.add(T0)
        cluster.go(2)
        await cluster.settled()
        office = cluster.office
        assert office.term is not None
        ended = weakref.ref(office.term), weakref.ref(office.term.changes)
        if is_lost:
            office.session.expire()
        else:
            office.election.resign()
        await cluster.settled()
        assert [each() for each in ended] == [None, None]
        assert cluster.office.is_active and len(cluster.office.terms) == 2

    with uncollected():
        in_cluster(body)
