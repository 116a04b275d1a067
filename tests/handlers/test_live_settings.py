"""Settings changed at run time that are no topic's: the parts of the broker follow at once, and after a restart too.

Also of `kbroker.coordinator.modern.kind_settings`, `kbroker.handlers.topics.alter_configs`.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.handlers.altered import alter
from tests.handlers.changes import BROKER
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session


def value_of(session: Session, key: str) -> str:
    row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [key]}
    return str(session.quietly("DescribeConfigs", 4, resources=[row]).results[0].configs[0].value)


def is_served(port: int) -> bool:
    """Whether one more connection is answered."""
    with RawClient(port) as client:
        try:
            client.ask(raw.request(18, 0, b""))
        except (ConnectionError, EOFError, AssertionError):
            return False
        return True


def test_limits_of_connections_follow_at_once(broker: BrokerProcess) -> None:
    """An operator could not stop a client that opens thousands of connections without stopping the broker."""
    with closing(Session(broker.port)) as s:
        assert is_served(broker.port)
        alter(s, ("max.connections.per.ip", "1"))
        assert not is_served(broker.port)
        alter(s, ("max.connections.per.ip.overrides", "127.0.0.1:2"))
        wait_for(partial(is_served, broker.port), "room for a second connection")
        alter(s, ("max.connections", "1"), name="1")
        assert not is_served(broker.port)
        alter(s, ("max.connections", None), name="1")
        alter(s, ("max.connections.per.ip", None), ("max.connections.per.ip.overrides", None))
        assert is_served(broker.port)


def test_the_cleaner_follows_and_a_restart_keeps_it(kbroker_process: StartBroker) -> None:
    """Compaction could not be sped up while the disk fills, or would fall back with the next crash."""
    broker = kbroker_process({"log.cleaner.backoff.ms": "3600000", "log.cleaner.io.max.bytes.per.second": "1000"})

    def compacted() -> bool:
        checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
        return checkpoint.exists() and "table 0" in checkpoint.read_text()

    with closing(Session(broker.port)) as s:
        s.create("table", configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
        s.fill("table", *(Batch([(b"k", b"x" * 600_000)]) for _ in range(4)))
        before = sum(broker.log_sizes("table-0"))
        alter(s, ("log.cleaner.io.max.bytes.per.second", "1000000000"), ("log.cleaner.backoff.ms", "100"))
        wait_for(compacted, "the compaction that the new interval brings")
        assert sum(broker.log_sizes("table-0")) < before
        alter(s, ("log.cleaner.threads", "2"), name="1")
    broker.restart(kill=True)
    with closing(Session(broker.port)) as s:
        assert value_of(s, "log.cleaner.backoff.ms") == "100"
        assert value_of(s, "log.cleaner.threads") == "2"
        alter(s, ("log.cleaner.threads", "4"), name="1")


def test_producers_are_forgotten_sooner(kbroker_process: StartBroker) -> None:
    """The state of producers that come and go could fill the memory, with nothing to do but a restart."""
    broker = kbroker_process({"producer.id.expiration.check.interval.ms": "50"})

    def producers(session: Session) -> int:
        row = {"name": "sold", "partition_indexes": [0]}
        answer = session.quietly("DescribeProducers", 0, topics=[row])
        return len(answer.topics[0].partitions[0].active_producers)

    with closing(Session(broker.port)) as s:
        s.create("sold")
        now_ms = round(time.time() * 1000)
        fresh = Batch([(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, timestamps=(now_ms,))
        s.fill("sold", fresh)
        assert producers(s) == 1
        alter(s, ("producer.id.expiration.ms", "1"))
        wait_for(lambda: producers(s) == 0, "the producer to be forgotten")
