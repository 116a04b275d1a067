"""The controller as the rest of a broker sees it: two asynchronous interfaces, wherever the controller runs.

`BrokerRequests` is what a broker asks for itself, `Administration` what clients change.  Where requests of clients go
on to the controllers as they came (KRaft), the broker has the first alone.

Callers await it and never assume that it is this node: what it decides comes back as an outcome, and reaches this
broker's `MetadataCache` as a delta that every broker of the cluster applies in the same order.  When a method returns,
its change is durable, and visible in this node's cache.

Errors are exceptions.  `NotControllerError`: another node is the controller by now.  `KafkaStorageError`: nothing was
changed, since it could not be stored.  Errors of one topic, resource or partition are in its outcome.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from kbroker.errors import KafkaError
    from kbroker.metadata.features import FeatureUpdate
    from kbroker.metadata.image import ClusterImage, QuotaEntity, TopicImage
    from kbroker.metadata.security_image import Outcome, SecurityChange
    from kbroker.metadata.store import ProducerIdBlock
    from kbroker.quotas.alteration import EntityAlteration
    from kbroker.quotas.mutation_quota import MutationQuota
    from kbroker.schemas import wire
    from kbroker.types import TopicPartition

    AskCreation = Callable[[wire.CreateTopicsRequest], Awaitable[wire.CreateTopicsResponse]]


class BrokerRequests(ABC):
    """What a broker asks for itself."""

    @abstractmethod
    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """Create the topics that clients named, with the broker's defaults or, for internal ones, their own rules."""

    async def auto_create_topics_for(self, names: Iterable[str], ask: AskCreation) -> dict[str, TopicOutcome]:
        """The same where other nodes are the controllers, which authorize clients and count their quotas: `ask` asks
        them in the client's name."""
        return await self.auto_create_topics(names)

    @abstractmethod
    async def ensure_internal_topic(self, name: str) -> TopicImage:
        """The internal topic `name`, made now if need be.  Raises what its creation fails with."""

    @abstractmethod
    async def create_group_topics(
        self, requests: Sequence[NewTopic], quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        """Create the internal topics of streams groups, which coordinators here have found missing."""

    @abstractmethod
    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        """Take the ISRs that a leader proposes (AlterPartition).  StaleBrokerEpochError for an old broker epoch."""

    @abstractmethod
    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        """Elect leaders and raise epochs for replicas that a broker has lost, or has again."""

    @abstractmethod
    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        """Ids that no broker was given before.  StaleBrokerEpochError for an old broker epoch."""


class Administration(ABC):
    """What clients change, and what brokers ask whose controller is one of them."""

    async def ready(self, timeout_ms: int) -> None:
        """Wait, up to the timeout of a request, while this broker has been elected and has not taken over yet: until
        then it would refuse its clients' requests.  Behind it `image` has what the controller had decided before.
        KafkaError."""
        return

    # Topics

    @abstractmethod
    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        """Create topics, or only say what would come of it.  `quota` is what partitions are counted against.

        Outcomes are in the order of the request; names that the request repeats come last, once each.
        PolicyViolationError when the request asks for too many partitions in all.
        """

    @abstractmethod
    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        """Add partitions to topics.  Names that the request repeats come first, once each, then the others."""

    @abstractmethod
    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None = None) -> list[TopicOutcome]:
        """Delete topics by id, in one transaction.  An unknown id has UNKNOWN_TOPIC_ID."""

    # Settings

    @abstractmethod
    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Change settings of topics, brokers, groups and client metrics, each resource named once.

        Each resource changes whole or not at all; the others go on.
        """

    @abstractmethod
    async def alter_client_quotas(
        self, alterations: Sequence[EntityAlteration], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Alter quotas of clients: an error or None for each entity, in the order of the request."""

    @abstractmethod
    async def alter_security(self, change: SecurityChange[Outcome]) -> Outcome:
        """Change ACLs, credentials or tokens as the change plans it; what it is answered with."""

    # Partitions

    @abstractmethod
    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        """Elect leaders of these partitions, or of all that need it (None)."""

    @abstractmethod
    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        """Begin to move replicas to other brokers, or call such moves off."""

    @abstractmethod
    def image(self) -> ClusterImage:
        """The cluster as the controller knows it, with the reassignments under way that brokers are not sent."""

    # Brokers

    @abstractmethod
    async def unregister_broker(self, node_id: int) -> None:
        """Forget a broker that does not come back.  BrokerIdNotRegisteredError where there is none."""

    @abstractmethod
    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """Move the leaders of a broker that wants to stop to others; the partitions that it still leads after that.

        Raises NotControllerError."""

    # The cluster

    @abstractmethod
    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        """Change levels of features, all or none.  InvalidUpdateVersionError for the first that cannot be done."""


class Controller(BrokerRequests, Administration):
    """A controller that is in this process, or asked call by call."""

    async def create_group_topics(
        self, requests: Sequence[NewTopic], quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        return await self.create_topics(requests, quota=quota)
