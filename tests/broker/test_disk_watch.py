"""How often a broker looks at its disks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.protocol.api import ApiKey


def test_fetches_do_not_have_the_disks_looked_at_more_often(tmp_path: Path) -> None:
    """Followers ask all the time: an idle broker of a cluster would look at its disks as one that is written to."""

    async def scenario() -> None:
        broker = Broker(BrokerConfig.from_mapping({"log.dirs": str(tmp_path)}), asyncio.get_running_loop())
        watch = broker.log_manager.watch
        assert [watch.interval_ms() for _ in range(2)] == [100, 500]
        broker.node.stats.add(ApiKey.FETCH, 1, 1, 1)
        assert watch.interval_ms() == 500
        broker.node.stats.add(ApiKey.PRODUCE, 1, 1, 1)
        assert watch.interval_ms() == 100

    asyncio.run(scenario())
