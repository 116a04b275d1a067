"""Specifications of the internal topics, in which brokers keep their own state.

Partition counts and settings are Kafka's.  A segment size below a topic's minimum is raised to that minimum: Kafka
accepts such a setting and then cannot create the topic, so that no group works.  If the number of brokers is known, it
bounds the replication factor and the minimum ISR, so that the defaults (3 and 2) serve a single node too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

LEAST_SEGMENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """What to create."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig, most_replicas: int | None) -> InternalTopic:
    """The specification of internal topic `name`; with None as its settings say.  KeyError when it is none."""
    prefix = {
        GROUP_METADATA_TOPIC: "offsets.topic",
        TRANSACTION_STATE_TOPIC: "transaction.state.log",
        SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic",
    }[name]

    def replicas(rest: str) -> int:
        wanted = config.value_of(f"{prefix}.{rest}")
        return int(wanted if most_replicas is None else max(1, min(wanted, most_replicas)))

    segment_bytes = max(config.value_of(f"{prefix}.segment.bytes"), LEAST_SEGMENT_BYTES)
    configs = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
    if name == GROUP_METADATA_TOPIC:
        configs["compression.type"] = "producer"
    else:
        configs["min.insync.replicas"] = str(replicas("min.isr"))
    if name == TRANSACTION_STATE_TOPIC:
        configs |= {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
    if name == SHARE_GROUP_STATE_TOPIC:
        configs |= {"cleanup.policy": "delete", "retention.ms": "-1", "compression.type": "producer"}
    return InternalTopic(
        name,
        config.value_of(f"{prefix}.num.partitions"),
        replicas("replication.factor"),
        configs,
    )
