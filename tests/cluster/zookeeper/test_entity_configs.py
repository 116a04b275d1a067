"""Notifications of changed settings in ZooKeeper: who takes them away, and when."""

from __future__ import annotations

import asyncio

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.entity_configs import KEPT_MS, EntityConfigs
from kbroker.cluster.zookeeper.znodes import encode_config_change
from tests.cluster.zookeeper.fake import FakeEnsemble

LONG_AGO_MS = 1_000_000


def test_notifications_grow_old_by_zookeepers_clock_alone() -> None:
    """A broker whose clock is a day ahead would take notifications away before others have seen them."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await session.create("/config")
        await session.create(paths.CONFIG_CHANGES)
        ages_ms = (KEPT_MS + 1, KEPT_MS - 1, 0)
        for age_ms in ages_ms:
            path = await session.create(paths.CONFIG_CHANGE_PREFIX, encode_config_change("topics/t"), sequential=True)
            ensemble.ctimes_ms[path] = LONG_AGO_MS + KEPT_MS - age_ms
        configs = EntityConfigs(ensemble.session())
        task = asyncio.ensure_future(configs.run())
        async with asyncio.timeout(20):
            while len(ensemble.children_of(paths.CONFIG_CHANGES)) == len(ages_ms):
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
        task.cancel()
        assert len(ensemble.children_of(paths.CONFIG_CHANGES)) == 2

    asyncio.run(body())
