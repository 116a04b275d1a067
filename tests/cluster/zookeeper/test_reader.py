"""What a controller reads when it is elected."""

from __future__ import annotations

import asyncio

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.reader import TOGETHER, UNDER_WAY, ZnodeReader
from kbroker.cluster.zookeeper.session import ensure_path
from kbroker.cluster.zookeeper.znodes import StateZnode, encode_state
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.fake import FakeEnsemble

COUNT = 2 * UNDER_WAY


def test_states_of_many_partitions_take_few_requests() -> None:
    """Each request costs kazoo more than the read itself costs ZooKeeper; one state without sense hides no other."""

    async def body() -> None:
        session = FakeEnsemble().session()
        for index in range(COUNT):
            await ensure_path(session, paths.state("t", index))
            await session.set(paths.state("t", index), encode_state(StateZnode(1, index, (1, 2), 3, False)))
        await session.set(paths.state("t", 5), b"nonsense")
        reader = ZnodeReader(session)
        names = [TopicPartition("t", index) for index in range(COUNT + 1)]
        before = session.calls
        found = await reader.states(names)
        assert session.calls - before == -(-len(names) // TOGETHER)
        assert sorted(name.partition for name in found) == [each for each in range(COUNT) if each != 5]
        assert all(state.leader_epoch == name.partition for name, (state, _) in found.items())
        assert list(reader.nonsense) == [paths.state("t", 5)]

    asyncio.run(body())
