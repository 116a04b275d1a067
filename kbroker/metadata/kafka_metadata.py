"""What the metadata of an Apache Kafka cluster says that is to be imported: built record by record.

Only what a cluster keeps: sessions and fencing of brokers are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kbroker.metadata.image import ConfigResource, PartitionImage, QuotaEntity
from kbroker.metadata.metadata_record import MetadataRecord
from kbroker.metadata.record_deltas import (
    TOPIC_RESOURCE,
    RecordedTopic,
    partition_of,
    put,
    quota_entity,
    unknown_topic,
)
from kbroker.metadata.security_image import SecurityImage
from kbroker.metadata.security_records import SecurityDraft
from kbroker.schemas import wire


def has_all(partition: PartitionImage, node_id: int) -> bool:
    """Whether a node's replica has all that was committed, as far as is known: after a stop no ISR may be left."""
    eligible = (*partition.isr, *partition.elr, *partition.last_known_elr)
    return node_id in eligible or partition.replicas == (node_id,)


@dataclass(slots=True)
class KafkaMetadata:
    """The cluster.  `configs` by resource, with topics among them."""

    topics: dict[bytes, RecordedTopic] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    security: SecurityImage = field(default_factory=SecurityImage)
    """ACLs, SCRAM credentials and delegation tokens."""

    def topic_configs(self, name: str) -> dict[str, str]:
        """What is set on a topic."""
        return self.configs.get(ConfigResource(TOPIC_RESOURCE, name), {})

    def replay(self, records: Iterable[MetadataRecord]) -> None:
        """Takes in records, in order.  MetadataLogError for what contradicts those before."""
        security = SecurityDraft()
        for record in records:
            if not security.take(record.value):
                self._apply(record)
        self.security = self.security.apply(security.delta(self.security))

    def _apply(self, record: MetadataRecord) -> None:
        match record.value:
            case wire.TopicRecord() as value:
                self.topics[value.topic_id] = RecordedTopic(value.name, value.topic_id)
            case wire.PartitionRecord() as value:
                self._topic(value.topic_id).partitions[value.partition_id] = partition_of(value)
            case wire.PartitionChangeRecord() as value:
                self._topic(value.topic_id).change(value)
            case wire.RemoveTopicRecord() as value:
                removed = self._topic(value.topic_id)
                del self.topics[value.topic_id]
                self.configs.pop(ConfigResource(TOPIC_RESOURCE, removed.name), None)
            case wire.ClearElrRecord() as value:
                self._clear_elr(value.topic_name)
            case wire.ConfigRecord() as value:
                self._configure(ConfigResource(value.resource_type, value.resource_name), value.name, value.value)
            case wire.ClientQuotaRecord() as value:
                self._limit(value)
            case wire.FeatureLevelRecord() as value:
                self.features[value.name] = value.feature_level
            case wire.ProducerIdsRecord() as value:
                self.next_producer_id = max(self.next_producer_id, value.next_producer_id)

    def _topic(self, topic_id: bytes) -> RecordedTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise unknown_topic(topic_id)
        return topic

    def _clear_elr(self, name: str) -> None:
        """Of a topic, or of all where it has no name."""
        for topic in self.topics.values():
            if name in ("", topic.name):
                topic.clear_elr()

    def _configure(self, resource: ConfigResource, name: str, value: str | None) -> None:
        values = self.configs.setdefault(resource, {})
        put(values, name, value)
        if not values:
            del self.configs[resource]

    def _limit(self, value: wire.ClientQuotaRecord) -> None:
        entity = quota_entity(value)
        values = self.quotas.setdefault(entity, {})
        put(values, value.key, None if value.remove else value.value)
        if not values:
            del self.quotas[entity]
