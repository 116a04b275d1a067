"""Topics that are made while brokers of the cluster are missing have all their replicas, or are not made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kbroker.broker import Broker
from kbroker.cluster.requests import NewTopic
from kbroker.errors import InvalidReplicationFactorError
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tests.cluster.zookeeper.fake import FakeEnsemble
from tests.cluster.zookeeper.membered import run, started

INTERNAL = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)


async def elected(broker: Broker) -> None:
    """It is the controller, and knows itself as the only broker."""
    while not broker.services.metadata_cache.is_filled:
        await asyncio.sleep(0.01)
    assert [each.node_id for each in broker.services.metadata_cache.image.alive_brokers()] == [1]


def test_the_first_broker_makes_no_topic_with_fewer_replicas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients that come before the other brokers would leave all groups' offsets on one machine, for good."""

    async def body() -> None:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "default_replication_factor": "3"}
        broker = await started(FakeEnsemble(), tmp_path, **settings)
        await elected(broker)
        controller = broker.services.controller
        (outcome,) = await controller.create_topics([NewTopic("asked")])
        assert isinstance(outcome.error, InvalidReplicationFactorError)
        for _ in range(3):
            outcomes = await controller.auto_create_topics(["named", *INTERNAL])
            assert all(isinstance(each.error, InvalidReplicationFactorError) for each in outcomes.values())
            for name in INTERNAL:
                with pytest.raises(InvalidReplicationFactorError):
                    await controller.ensure_internal_topic(name)
        assert not broker.services.metadata_cache.image.topics
        await broker.stop()

    run(body())
    complaints = [each.getMessage() for each in caplog.records if "automatically" in each.getMessage()]
    assert len(complaints) == 3, "clients repeat their requests many times a second"
    assert all("the target replication factor of 3" in each.lower() for each in complaints)


def test_one_broker_with_factors_of_one_serves_groups(tmp_path: Path) -> None:
    """A cluster of one, with the settings that Kafka needs for it, would have no groups."""

    async def body() -> None:
        settings = {f"{each}_replication_factor": "1" for each in ("offsets_topic", "transaction_state_log")}
        broker = await started(FakeEnsemble(), tmp_path, listeners="PLAINTEXT://127.0.0.1:0", **settings)
        await elected(broker)
        outcomes = await broker.services.controller.auto_create_topics(INTERNAL)
        assert {type(each.error).__name__ for each in outcomes.values()} == {"LeaderNotAvailableError"}
        while len(broker.services.metadata_cache.image.topics) < len(INTERNAL):
            await asyncio.sleep(0.01)
        await broker.stop()

    run(body())
