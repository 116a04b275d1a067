"""A broker in the process of the test, as a member of a cluster that a model of ZooKeeper keeps."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from pathlib import Path

import pytest
import uvloop

from kbroker._fast.base.slices import Slices
from kbroker.assembly.membership.zookeeper import ZooKeeperMembership
from kbroker.broker import Broker
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, ZooKeeperMember
from kbroker.cluster.zookeeper.session import Session
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.config import BrokerConfig
from tests.cluster.zookeeper.fake import FakeEnsemble

SETTINGS = ZooKeeperSettings("somewhere:2181/kafka", 2_000, 20_000)


def run(work: Coroutine[object, object, None]) -> None:
    """On the broker's own kind of loop, for a minute at most."""
    with contextlib.closing(uvloop.new_event_loop()) as loop:
        loop.run_until_complete(asyncio.wait_for(work, 60))


def member_over(session: Session, config: BrokerConfig) -> ZooKeeperMember:
    """A membership that is not open yet; of the running loop."""
    loop = asyncio.get_running_loop()
    parts = MemberParts(config, SYSTEM_CLOCK, Slices(loop), protocol_version("3.9"), "PLAINTEXT", pytest.fail)
    return ZooKeeperMember(SETTINGS, parts, loop, MemberNetwork(session, TcpTransport(loop), random.Random(1)))


def broker_over(session: Session, folder: Path, stopping: asyncio.Event | None = None, **settings: str) -> Broker:
    """Broker 1, which is not started yet; `settings` with underscores for dots."""
    given = {name.replace("_", "."): text for name, text in settings.items()}
    config = BrokerConfig.from_mapping(
        {
            "broker.id": "1",
            "zookeeper.connect": SETTINGS.connect,
            "log.dirs": str(folder / "data"),
            "metrics.listener": "none",
            "controlled.shutdown.enable": "false",
            **given,
        }
    )
    return Broker(
        config,
        asyncio.get_running_loop(),
        stopping,
        make_membership=lambda parts: ZooKeeperMembership(parts, member_over(session, config)),
    )


async def started(ensemble: FakeEnsemble, folder: Path, **settings: str) -> Broker:
    """Broker 1, which is a member."""
    broker = broker_over(ensemble.session(), folder, **settings)
    await broker.start()
    return broker
