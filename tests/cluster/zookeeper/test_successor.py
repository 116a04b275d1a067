"""What a controller does that takes over from one that is gone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kbroker.cluster.requests import Reassignment
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import ANY_VERSION, Operation, Set
from kbroker.errors import KafkaError
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import T0, Cluster, before_each_write, brief, ends_behind, in_cluster, take_isr

OLD, TARGET = [2, 3], [1, 2]
WRITES = 3
"""More than any step of a reassignment makes."""


async def replaced(cluster: Cluster, work: Callable[[Cluster], Awaitable[None]], writes: int, sees_last: bool) -> None:
    """The controller ends behind so many writes of that work (`ends_behind`), and another one goes on."""
    first = cluster.office
    ends_behind(first.session, writes, sees_last=sees_last)
    with contextlib.suppress(KafkaError):
        await work(cluster)
    first.session.drop()
    await cluster.settled()
    assert cluster.office is not first


def check_replicas(cluster: Cluster) -> None:
    """Each broker knows the replicas that ZooKeeper has, in its leader epoch, and no other broker has one."""
    found = cluster.json(paths.topic("t"))
    replicas = found["partitions"]["0"]
    for node_id, broker in cluster.brokers.items():
        told = broker.states.get(T0)
        assert (told is not None) is (node_id in replicas), (node_id, replicas)
        if told is not None:
            assert (told.replicas, told.leader_epoch) == (replicas, cluster.state("t")["leader_epoch"]), node_id
            assert told.adding_replicas == found["adding_replicas"].get("0", []), node_id


async def begin(cluster: Cluster) -> None:
    """A reassignment, as a request asks for it."""
    await cluster.office.administration.alter_reassignments([Reassignment(T0, TARGET)], True)


async def call_off(cluster: Cluster) -> None:
    """No reassignment, after all."""
    await cluster.office.administration.alter_reassignments([Reassignment(T0, None)], True)


async def end(cluster: Cluster) -> None:
    """The new replica is in sync."""
    await take_isr(cluster, T0, [2, 3, 1])


@pytest.mark.parametrize("sees_last", [True, False])
@pytest.mark.parametrize("writes", range(WRITES))
def test_a_reassignment_that_its_controller_has_begun_goes_on(writes: int, sees_last: bool) -> None:
    """Leaders would never hear of replicas that ZooKeeper has: the move would stand still for good."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [OLD])
        await replaced(cluster, begin, writes, sees_last)
        check_replicas(cluster)
        if cluster.json(paths.topic("t"))["adding_replicas"]:
            assert cluster.brokers[1].states[T0].is_new
            await end(cluster)
            check_replicas(cluster)
            assert cluster.json(paths.topic("t"))["partitions"] == {"0": TARGET}
            assert cluster.brokers[3].stopped[-1] == (T0, True)

    in_cluster(body, offices=2)


def test_a_reassignment_of_which_brokers_have_not_heard_is_told_in_a_new_epoch() -> None:
    """A controller of Kafka writes the assignment first: what it leaves would be sent in an epoch that leaders have."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [OLD])
        cluster.office.session.drop()
        topic = cluster.json(paths.topic("t"))
        topic |= {"partitions": {"0": [1, 2, 3]}, "adding_replicas": {"0": [1]}, "removing_replicas": {"0": [3]}}
        await cluster.ensemble.session().set(paths.topic("t"), json.dumps(topic).encode())
        await cluster.settled()
        assert cluster.state("t")["leader_epoch"] == 1
        check_replicas(cluster)
        assert cluster.brokers[1].states[T0].is_new
        await end(cluster)
        assert cluster.json(paths.topic("t"))["partitions"] == {"0": TARGET}

    in_cluster(body, offices=2)


@pytest.mark.parametrize("sees_last", [True, False])
@pytest.mark.parametrize("writes", range(WRITES))
@pytest.mark.parametrize("work", [end, call_off])
def test_no_replica_is_left_behind_where_a_reassignment_ends_with_its_controller(
    work: Callable[[Cluster], Awaitable[None]], writes: int, sees_last: bool
) -> None:
    """A broker that runs all the while would go on as the leader, with a log that is other brokers' by now."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [OLD])
        await begin(cluster)
        await replaced(cluster, work, writes, sees_last)
        check_replicas(cluster)

    in_cluster(body, offices=2)


def test_a_move_whose_leader_has_written_another_isr_does_not_end() -> None:
    """Replicas would be deleted though the leader, of a Kafka before 2.7, has just dropped the new one from the ISR."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [OLD])
        await begin(cluster)
        path = paths.state("t", 0)

        def shrink(operations: Sequence[Operation]) -> None:
            ends = [each for each in operations if isinstance(each, Set) and b'"leader_epoch":2' in each.data]
            if ends and 1 in cluster.state("t")["isr"]:
                state = {**cluster.state("t"), "isr": OLD}
                cluster.ensemble.apply(Set(path, json.dumps(state).encode(), ANY_VERSION), 0)

        before_each_write(cluster.office.session, shrink)
        await end(cluster)
        assert cluster.json(paths.topic("t"))["adding_replicas"] == {"0": [1]}
        assert cluster.brokers[3].stopped == []
        assert brief(cluster.state("t")) == (2, 1, OLD)

    in_cluster(body)


def test_a_successor_tells_replicas_once_of_what_the_dead_controller_led_or_followed() -> None:
    """With thousands of partitions replicas would be busy with what is untrue in the next moment."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        await cluster.create("u", [[2, 3], [3, 2]])
        first, second = cluster.offices
        cluster.brokers[3].asked.clear()
        cluster.go(1)
        first.session.drop()
        await cluster.settled()
        assert cluster.office is second
        assert cluster.brokers[3].asked == [
            [TopicPartition("u", 0), TopicPartition("u", 1)],
            [TopicPartition("t", 0), TopicPartition("t", 1)],
        ]
        assert cluster.state("t")["isr"] == [2, 3]
        for told in (cluster.brokers[3].states, cluster.brokers[3].metadata):
            assert (told[TopicPartition("t", 0)].leader, told[TopicPartition("t", 0)].leader_epoch) == (2, 1)

    in_cluster(body, offices=2)
