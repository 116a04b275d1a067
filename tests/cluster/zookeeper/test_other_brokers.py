"""A controller and other brokers: those that are not registered, and those of every older Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS, protocol_version
from kbroker.cluster.requests import BrokerEpoch, IsrChange
from kbroker.cluster.zookeeper.messages import Messages
from kbroker.errors import BrokerIdNotRegisteredError, KafkaError, StaleBrokerEpochError
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import LISTENER, Cluster, in_cluster

Ask = Callable[[BrokerEpoch], Awaitable[object]]


def test_requests_of_a_broker_that_is_not_registered_change_nothing() -> None:
    """A broker that the cluster has forgotten would change ISRs, take producer ids, or move leaders."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3]])
        gone = cluster.epoch_of(3)
        cluster.go(3)
        await cluster.settled()
        administration = cluster.office.administration
        change = IsrChange(TopicPartition("t", 0), 1, 1, [(1, -1), (2, -1), (3, -1)])
        asked: list[tuple[Ask, type[KafkaError]]] = [
            (lambda broker: administration.alter_partitions(broker, [change]), StaleBrokerEpochError),
            (administration.allocate_producer_ids, StaleBrokerEpochError),
            (administration.controlled_shutdown, BrokerIdNotRegisteredError),
        ]
        before = list(cluster.ensemble.writes)
        for broker in (gone, BrokerEpoch(9, 1)):
            for ask, error in asked:
                with pytest.raises(error):
                    await ask(broker)
        await cluster.settled()
        assert cluster.ensemble.writes == before

    in_cluster(body)


def test_a_controllers_requests_have_their_bytes_in_every_protocol_version() -> None:
    """Brokers of an older Kafka would not be told what to lead, or keep the logs of topics that are gone."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        names = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert cluster.office.term is not None
        for ibp in PROTOCOL_VERSIONS:
            messages = Messages(cluster.office.term.context, protocol_version(ibp), LISTENER)
            told: list[tuple[Any, int]] = list(messages.leader_and_isr(names, {names[0]: (1,)}).values())
            for request, version in told:
                assert written(request, version).controller_epoch == 1
            for delete in (False, True):
                ((request, version),) = messages.stop_replica(2, names, delete)
                read = written(request, version)
                rows = [each.delete_partition for topic in read.topic_states for each in topic.partition_states]
                assert (read.delete_partitions or any(rows)) is delete

    in_cluster(body)


def written(request: Any, version: int) -> Any:
    """What the bytes of a request say."""
    program = type(request).program(version)
    return program.decode(program.encode(request))
