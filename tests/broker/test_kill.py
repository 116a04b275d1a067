"""Brokers that are killed under load, again and again: what was acknowledged must be there, once.

Also of `kbroker.handlers.records.delete_records`.
"""

from __future__ import annotations

import random

import pytest

from tests.broker.client import Client, wait_for
from tests.broker.records import Writer, check_all_there_once, read_topic
from tests.conftest import StartBroker

KILLS = 4
MANY_KILLS = 50
PARTITIONS = 3
SMALL_SEGMENTS = {"log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "0"}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_nothing_acknowledged_is_lost_or_doubled_by_kills(kbroker_process: StartBroker, fsync: str, kills: int) -> None:
    """A crash of the process would cost acknowledged records, or deliver them twice."""
    random.seed(20)
    broker = kbroker_process({**SMALL_SEGMENTS, "kbroker.fsync": fsync})
    with Client(broker.port) as client:
        client.create("t", PARTITIONS)
    writer = Writer(broker.bootstrap, "t", padding=b"." * 200)
    for _ in range(kills):
        aim = len(writer.acknowledged) + random.randrange(200, 2000)

        def loaded(aim: int = aim) -> bool:
            writer.send(100)
            return writer.poll() >= aim

        wait_for(loaded, "acknowledgements after a restart", seconds=60, every=0.001)
        writer.send(random.randrange(0, 500))
        broker.restart(kill=True)
    writer.finish()
    found = read_topic(broker.bootstrap, "t")
    assert len(writer.acknowledged) == writer.sent == len(found)
    check_all_there_once(writer, found)
    assert broker.stop() == 0
