"""ISRs that leaders write to ZooKeeper themselves, below inter.broker.protocol.version 2.7."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.cluster.requests import IsrChange
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.isr_writer import IsrWriter
from kbroker.cluster.zookeeper.session import ConnectionLossError
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import T0, Cluster, in_cluster


def change(name: TopicPartition, epoch: int, version: int, *isr: int) -> IsrChange:
    return IsrChange(name, epoch, version, [(each, -1) for each in isr])


async def alter(writer: IsrWriter, *changes: IsrChange) -> list[tuple[ErrorCode, int]]:
    """Each partition's error code and version."""
    found = []
    for outcome in await writer.alter(changes):
        code = ErrorCode.NONE if outcome.error is None else outcome.error.code
        found.append((code, -1 if outcome.image is None else outcome.image.partition_epoch))
    return found


def test_a_leader_writes_its_isr_and_the_controller_takes_it_up() -> None:
    """In a cluster on its way from an old Kafka no replica would leave or join an ISR."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3]])
        writer = IsrWriter(cluster.ensemble.session(), 1)
        assert await alter(writer, change(T0, 0, 0, 1, 2)) == [(ErrorCode.NONE, 1)]
        state = cluster.ensemble.content(paths.state("t", 0))
        assert state == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
        await cluster.settled()
        assert cluster.brokers[2].metadata[T0].isr == [1, 2]
        assert not cluster.ensemble.children_of(paths.ISR_CHANGES), "the notification is dealt with"
        # The answer was lost, and the leader writes again.
        assert await alter(writer, change(T0, 0, 0, 1, 2)) == [(ErrorCode.NONE, 1)]
        assert await alter(writer, change(T0, 0, 1, 1, 2, 3)) == [(ErrorCode.NONE, 2)]
        await cluster.settled()
        assert cluster.brokers[2].metadata[T0].isr == [1, 2, 3]

    in_cluster(body)


def test_a_leader_that_was_deposed_or_is_behind_writes_nothing() -> None:
    """A frozen leader that wakes up would put itself into an ISR that is not its own any more."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        writer = IsrWriter(cluster.ensemble.session(), 1)
        before = cluster.ensemble.content(paths.state("t", 0))
        asked: list[tuple[Any, ErrorCode]] = [
            (change(T0, 1, 0, 1), ErrorCode.FENCED_LEADER_EPOCH),
            (change(T0, 0, 7, 1), ErrorCode.INVALID_UPDATE_VERSION),
            (change(TopicPartition("t", 1), 0, 0, 1), ErrorCode.FENCED_LEADER_EPOCH),
            (change(TopicPartition("t", 9), 0, 0, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        found = await alter(writer, *(each for each, _ in asked))
        assert [code for code, _ in found] == [code for _, code in asked]
        assert cluster.ensemble.content(paths.state("t", 0)) == before
        assert not cluster.ensemble.children_of(paths.ISR_CHANGES)
        await cluster.ensemble.session().set(paths.state("t", 0), b"no state")
        assert await alter(writer, change(T0, 0, 0, 1)) == [(ErrorCode.INVALID_UPDATE_VERSION, -1)]

    in_cluster(body)


def test_a_leader_asks_again_where_zookeeper_is_away() -> None:
    """A proposal would be taken for refused, and the high watermark stand still until the next change."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3]])
        session = cluster.ensemble.session()
        session.suspend()
        with pytest.raises(ConnectionLossError):
            await IsrWriter(session, 1).alter([change(T0, 0, 0, 1)])

    in_cluster(body)
