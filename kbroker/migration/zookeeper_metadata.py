"""The metadata of a cluster in ZooKeeper mode, read from it: topics, settings, quotas, ACLs, users, tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.acl_znodes import AclZnodes
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.kazoo_session import KazooSession
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import ZooKeeperError
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.cluster.zookeeper.token_znodes import TokenZnodes
from kbroker.cluster.zookeeper.znodes import decode_cluster_id, decode_producer_id_block
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, ConfigResource, PartitionImage, TopicImage
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.metadata.record_deltas import TOPIC_RESOURCE, RecordedTopic
from kbroker.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.session import ZooKeeper


async def from_zookeeper(connect: str, cluster_id: str) -> KafkaMetadata:
    """Asks the ZooKeeper at `connect`.  ZooKeeperError where it does not answer, or has another cluster."""
    session = KazooSession(ZooKeeperSettings(connect.rstrip("/")), asyncio.get_running_loop())
    await session.open(makes_chroot=False)
    try:
        return await read_cluster(session, cluster_id)
    finally:
        await session.close()


async def read_cluster(zookeeper: ZooKeeper, cluster_id: str) -> KafkaMetadata:
    """What ZooKeeper has of a cluster.  ZooKeeperError where it is another one, or a znode makes no sense."""
    reader = ZnodeReader(zookeeper)
    found = await reader.read(paths.CLUSTER_ID, decode_cluster_id)
    if found is None:
        raise ZooKeeperError(f"there is no {paths.CLUSTER_ID}: this ZooKeeper, or this chroot, has no Kafka")
    if cluster_id and found[0] != cluster_id:
        raise ZooKeeperError(f"this ZooKeeper has the cluster {found[0]}, the directories are of {cluster_id}")
    metadata = KafkaMetadata()
    await _topics(reader, metadata)
    block = await reader.read(paths.PRODUCER_ID_BLOCK, decode_producer_id_block)
    if block is not None:
        metadata.next_producer_id = block[0].last + 1
    await _settings(zookeeper, metadata)
    if reader.nonsense:
        path, reason = next(iter(reader.nonsense.items()))
        raise ZooKeeperError(f"{path} makes no sense: {reason}")
    return metadata


def _nothing() -> None:
    """What a watch does here: what is read once needs none."""


async def _topics(reader: ZnodeReader, metadata: KafkaMetadata) -> None:
    topics = await reader.topics(await reader.children(paths.TOPICS), lambda _name: _nothing)
    every = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    states = await reader.states(every)
    for name, topic in topics.items():
        # Before Kafka 2.8 topics had no id; a name is as good a key.
        known = RecordedTopic(name, topic.topic_id or ZERO_UUID)
        for number, replicas in topic.partitions.items():
            state = states.get(TopicPartition(name, number))
            known.partitions[number] = PartitionImage(
                number,
                state[0].leader if state else -1,
                state[0].leader_epoch if state else 0,
                replicas,
                state[0].isr if state else replicas,
                state[1] if state else 0,
            )
        metadata.topics[topic.topic_id or name.encode()] = known


async def _settings(zookeeper: ZooKeeper, metadata: KafkaMetadata) -> None:
    configs = EntityConfigs(zookeeper)
    topics = [TopicImage(each.name, each.topic_id, ()) for each in metadata.topics.values()]
    cache = MetadataCache(ClusterImage.of("", topics=topics))
    acls, tokens = AclZnodes(zookeeper), TokenZnodes(zookeeper)
    for each in (configs, acls, tokens):
        each.publish_to(cache)
    await configs.load()
    await acls.read()
    await tokens.read()
    for each in (configs, acls, tokens):
        for path, reason in each.nonsense.items():
            raise ZooKeeperError(f"{path} makes no sense: {reason}")
    metadata.security = cache.image.security
    metadata.configs = {resource: dict(values) for resource, values in cache.image.configs.items()}
    metadata.quotas = {entity: dict(values) for entity, values in cache.image.quotas.items()}
    for topic in metadata.topics.values():
        if settings := configs.of_topic(topic.name):
            metadata.configs[ConfigResource(TOPIC_RESOURCE, topic.name)] = dict(settings)
