"""Puts a transaction coordinator together from the parts of a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.coordinator.transactions.transaction_coordinator import ProducerIds, TransactionCoordinator
from kbroker.metadata.features import TRANSACTION_VERSION
from kbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kbroker.replication.state_log import PartitionStateLog

if TYPE_CHECKING:
    import asyncio

    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.transactions.completion import Markers
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage
    from kbroker.replication.replica_manager import ReplicaManager


def transaction_coordinator(
    config: BrokerConfig,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    replicas: ReplicaManager,
    cache: MetadataCache,
    producer_ids: ProducerIds,
    markers: Markers,
    max_batch_bytes: Callable[[TopicImage | None], int],
    slices: Slices,
    may_be_superseded: Callable[[], bool],
) -> TransactionCoordinator:
    """A coordinator over this broker's partitions of `__transaction_state`; `max_batch_bytes` is a topic's."""
    state_log = PartitionStateLog(
        TRANSACTION_STATE_TOPIC,
        replicas,
        lambda: max_batch_bytes(cache.topic(TRANSACTION_STATE_TOPIC)),
        loop.call_soon,
    )
    return TransactionCoordinator(
        config,
        clock,
        loop.call_later,
        state_log,
        cache,
        producer_ids,
        markers,
        lambda: cache.image.features.level(TRANSACTION_VERSION),
        slices,
        may_be_superseded,
    )
