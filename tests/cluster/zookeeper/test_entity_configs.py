"""Notifications of changed settings in ZooKeeper: who takes them away, and when."""

from __future__ import annotations

import asyncio
from unittest import mock

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.cluster_controller import ClusterController
from kbroker.cluster.zookeeper.context import first_image
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.notifications import KEPT_MS
from kbroker.cluster.zookeeper.session import ensure_path, set_or_create
from kbroker.cluster.zookeeper.znodes import encode_config, encode_config_change
from kbroker.config import BrokerConfig
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, ConfigResource, MetadataDelta, TopicImage
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from kbroker.quotas.host_names import HostNames
from tests.cluster.zookeeper.fake import FakeEnsemble
from tests.unbroken import UNBROKEN

LONG_AGO_MS = 1_000_000
MADE = TopicImage("t", bytes(15) + b"1", (), False, {})


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
        async with asyncio.timeout(60):
            while len(ensemble.children_of(paths.CONFIG_CHANGES)) == len(ages_ms):
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
        task.cancel()
        assert len(ensemble.children_of(paths.CONFIG_CHANGES)) == 2

    asyncio.run(body())


def test_a_topic_that_is_made_again_has_the_settings_that_it_was_made_with() -> None:
    """A broker that had read those of an earlier topic of the name would keep records by them, and show them."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await ensure_path(session, "/config/topics")
        await set_or_create(session, paths.topic_config("t"), encode_config({"segment.ms": "10"}))
        configs = EntityConfigs(session)
        cache = MetadataCache(ClusterImage.of("c"))
        configs.publish_to(cache)
        await configs.load()
        await set_or_create(session, paths.topic_config("t"), encode_config({"segment.ms": "20"}))
        await configs.prepare({"t": MADE.topic_id})
        assert configs.of_topic("t") == {"segment.ms": "20"}
        # Nor does it where this broker has yet to hear that the first one is gone.
        cache.apply(MetadataDelta(created=(MADE,)))
        await set_or_create(session, paths.topic_config("t"), encode_config({"segment.ms": "25"}))
        await configs.prepare({"t": MADE.topic_id})
        assert configs.of_topic("t") == {"segment.ms": "20"}
        await configs.prepare({"t": bytes(15) + b"2"})
        assert configs.of_topic("t") == {"segment.ms": "25"}
        cache.apply(MetadataDelta(deleted=(MADE,)))
        await set_or_create(session, paths.topic_config("t"), encode_config({"segment.ms": "30"}))
        assert (await configs.topics(["t"]))["t"] == {"segment.ms": "30"}

    asyncio.run(body())


def test_an_alteration_keeps_what_another_broker_has_just_set() -> None:
    """Two administrators at two brokers would undo each other's settings and quotas, though both were told that all is
    well."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        topic, broker = ConfigResource(ConfigResourceType.TOPIC, "t"), ConfigResource(ConfigResourceType.BROKER, "")
        user = (("user", "u"),)
        controllers = []
        for node_id in (1, 2):
            cache = MetadataCache(first_image("c", node_id))
            cache.apply(MetadataDelta(created=(MADE,)))
            configs = EntityConfigs(ensemble.session())
            configs.publish_to(cache)
            settings = BrokerSettings(BrokerConfig.from_mapping({"node.id": str(node_id)}), cache, node_id)
            controllers.append(
                ClusterController(node_id, session, cache, mock.Mock(), settings, configs, HostNames(), UNBROKEN)
            )
        # Neither follows notifications, as if they were on their way.
        changes = (
            ("segment.ms", "log.roll.ms", "producer_byte_rate"),
            ("retention.ms", "log.retention.ms", "consumer_byte_rate"),
        )
        for controller, (of_topic, of_broker, quota) in zip(controllers, changes, strict=True):
            alterations = [
                ConfigAlteration(resource, [ConfigEdit(name, EditOperation.SET, "1000000")])
                for resource, name in ((topic, of_topic), (broker, of_broker))
            ]
            assert await controller.alter_configs(alterations) == [None, None]
            altered = await controller.alter_client_quotas([EntityAlteration(user, [QuotaEdit(quota, 1000.0)])])
            assert altered == {user: None}
        configs = EntityConfigs(session)
        assert set(await configs.settings("topics/t")) == {"segment.ms", "retention.ms"}
        assert set(await configs.settings("brokers/<default>")) >= {"log.roll.ms", "log.retention.ms"}
        assert set(await configs.settings("users/u")) == {"producer_byte_rate", "consumer_byte_rate"}

    asyncio.run(body())


def test_a_setting_that_changes_while_the_broker_starts_is_followed() -> None:
    """A broker that takes minutes to load its logs would go by the settings of before until they change again."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await ensure_path(session, "/config/brokers")
        await ensure_path(session, paths.CONFIG_CHANGES)
        cache = MetadataCache(ClusterImage.of("c"))
        configs = EntityConfigs(ensemble.session())
        configs.publish_to(cache)
        await configs.load()
        other = EntityConfigs(ensemble.session())
        await other.write("brokers/<default>", {"log.roll.ms": "1000000"})
        task = asyncio.ensure_future(configs.run())
        async with asyncio.timeout(60):
            while not cache.image.configs:
                await asyncio.sleep(0)
        task.cancel()
        assert list(cache.image.configs.values()) == [{"log.roll.ms": "1000000"}]

    asyncio.run(body())
