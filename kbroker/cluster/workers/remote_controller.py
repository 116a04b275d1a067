"""`Controller` of a worker that is not the controller: every method is a call over the link to worker 1.

The link gives what the controller publishes in its order, so the change of a call is in this worker's cache before the
call returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    ReplicaReport,
    TopicOutcome,
)
from kbroker.cluster.workers.controller_link import LinkState
from kbroker.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
)

if TYPE_CHECKING:
    from kbroker.cluster.workers.controller_link import ControllerLink
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.features import FeatureUpdate
    from kbroker.metadata.image import ClusterImage, QuotaEntity, TopicImage
    from kbroker.metadata.security_image import Outcome, SecurityChange
    from kbroker.metadata.store import ProducerIdBlock
    from kbroker.quotas.alteration import EntityAlteration
    from kbroker.quotas.mutation_quota import MutationQuota
    from kbroker.types import TopicPartition


class RemoteController(Controller):
    """See the module."""

    def __init__(self, link: ControllerLink, cache: MetadataCache) -> None:
        self._link = link
        self._cache = cache

    async def ready(self, timeout_ms: int) -> None:
        """Wait until this worker's image has what the controller had published when this was asked.  Raises
        NotControllerError."""
        await self._link.call("ready", timeout_ms)

    # Topics

    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        found = await self._link.call("create_topics", list(requests), validate_only, quota=quota)
        return cast("list[TopicOutcome]", found)

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        wanted = list(names)
        try:
            return cast("dict[str, TopicOutcome]", await self._link.call("auto_create_topics", wanted))
        except NotControllerError:
            return {name: TopicOutcome(name, error=LeaderNotAvailableError()) for name in wanted}

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is not None:
            return topic
        try:
            return cast("TopicImage", await self._link.call("ensure_internal_topic", name))
        except NotControllerError:
            raise CoordinatorNotAvailableError() from None

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        found = await self._link.call("create_partitions", list(requests), validate_only, quota=quota)
        return cast("list[TopicOutcome]", found)

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None = None) -> list[TopicOutcome]:
        found = await self._link.call("delete_topics", list(topic_ids), quota=quota)
        return cast("list[TopicOutcome]", found)

    # Settings

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        found = await self._link.call("alter_configs", list(alterations), validate_only)
        return cast("list[KafkaError | None]", found)

    async def alter_client_quotas(
        self, alterations: Sequence[EntityAlteration], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        found = await self._link.call("alter_client_quotas", list(alterations), validate_only)
        return cast("dict[QuotaEntity, KafkaError | None]", found)

    async def alter_security(self, change: SecurityChange[Outcome]) -> Outcome:
        return cast("Outcome", await self._link.call("alter_security", change))

    # Partitions

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        return cast("list[PartitionOutcome]", await self._link.call("alter_partitions", broker, list(changes)))

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        wanted = None if partitions is None else list(partitions)
        return cast("list[PartitionOutcome]", await self._link.call("elect_leaders", election, wanted))

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        found = await self._link.call("alter_reassignments", list(reassignments), allow_replication_factor_change)
        return cast("list[PartitionOutcome]", found)

    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        await self._link.call("report_replicas", broker, report)

    def image(self) -> ClusterImage:
        """This worker's, which has all that the controller had published before the last call returned."""
        return self._cache.image

    # Brokers

    async def unregister_broker(self, node_id: int) -> None:
        await self._link.call("unregister_broker", node_id)

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """Nothing is left where the controller is away: the whole host stops, or it finds the worker gone."""
        if self._link.state is not LinkState.FOLLOWING:
            return []
        try:
            return cast("list[TopicPartition]", await self._link.call("controlled_shutdown", broker))
        except NotControllerError:
            return []

    # The cluster

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        return cast("ProducerIdBlock", await self._link.call("allocate_producer_ids", broker))

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        await self._link.call("update_features", list(updates), validate_only)
