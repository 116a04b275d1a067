"""What a broker of a KRaft cluster asks itself (`BrokerRequests`), over a connection to the active controller.

Requests of clients that change the cluster go on as they came (`forwarding`), so they are no calls here.  A change is
in this broker's cache when the log has brought it; `create_topics` of this broker's own waits for that, for
WAIT_SECONDS at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.cluster.controller.interface import BrokerRequests
from kbroker.cluster.creation_complaints import CreationComplaints
from kbroker.cluster.requests import (
    BrokerEpoch,
    IsrChange,
    NewTopic,
    PartitionOutcome,
    ReplicaReport,
    TopicOutcome,
)
from kbroker.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    again,
)
from kbroker.metadata.internal_topics import internal_topic
from kbroker.metadata.topic_names import is_internal
from kbroker.outage import Outage
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.cluster.controller.interface import AskCreation
    from kbroker.cluster.controller_channel import ControllerChannel
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage
    from kbroker.metadata.store import ProducerIdBlock
    from kbroker.quotas.mutation_quota import MutationQuota

logger = logging.getLogger("kbroker.cluster")

WAIT_SECONDS = 1.0
# Retriable: the topic is reported as unknown and the client asks again.
_LATER = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
CREATION_TIMEOUT_MS = 30_000


class KRaftController(BrokerRequests):
    """See the module."""

    def __init__(
        self,
        channel: ControllerChannel,
        metadata: ClusterMetadata,
        cache: MetadataCache,
        settings: BrokerSettings,
        disks_failed: Callable[[], None],
        most_replicas: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`disks_failed()`: log directories have failed, which the next heartbeat is to say.  `most_replicas()`: no
        topic that this broker makes has more, even where settings ask for it; None: as they say."""
        self._most_replicas = most_replicas
        self._channel = channel
        self._metadata = metadata
        self._cache = cache
        self._settings = settings
        self._disks_failed = disks_failed
        self._complaints = CreationComplaints()
        self._outage = Outage(logger)
        self._under_way: set[str] = set()

    # Topics that this broker makes

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """By this broker's settings, as Kafka's brokers do.

        A topic is usable when it has a leader in this broker's image; until then it is unknown.
        """
        return await self._create(list(dict.fromkeys(names)), self._channel.create_topics)

    async def auto_create_topics_for(self, names: Iterable[str], ask: AskCreation) -> dict[str, TopicOutcome]:
        """The client is answered after WAIT_SECONDS at most.  While no controller is active, the creation goes on;
        clients that ask for the same topics meanwhile hear that they are unknown, as from Kafka."""
        wanted = list(dict.fromkeys(names))
        outcomes = {name: TopicOutcome(name, error=UnknownTopicOrPartitionError()) for name in wanted}
        new = [name for name in wanted if name not in self._under_way]
        if new:
            self._under_way.update(new)
            task = asyncio.ensure_future(self._create(new, ask))
            task.add_done_callback(lambda _: self._under_way.difference_update(new))
            try:
                await asyncio.wait([task], timeout=WAIT_SECONDS)
                if task.done():
                    outcomes |= task.result()
            finally:
                del task  # It keeps its error, and the error this frame.
        return outcomes

    async def _create(self, wanted: Sequence[str], ask: AskCreation) -> dict[str, TopicOutcome]:
        request = wire.CreateTopicsRequest(
            topics=[self._new_topic(name) for name in wanted], timeout_ms=CREATION_TIMEOUT_MS
        )
        try:
            answer = await ask(request)
        except KafkaError as error:
            if not isinstance(error, NotControllerError):
                why = "%d topics that clients asked for cannot be made: %s"
                self._outage.failed(why, len(wanted), error)
            return {name: TopicOutcome(name, error=UnknownTopicOrPartitionError()) for name in wanted}
        self._outage.over("topics that clients ask for are made again")
        codes = {each.name: (ErrorCode(each.error_code), each.error_message) for each in answer.topics}
        made = [name for name, (code, _) in codes.items() if not code or code == ErrorCode.TOPIC_ALREADY_EXISTS]
        await self._seen(made)
        outcomes = {}
        for name in wanted:
            code, text = codes.get(name, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
            topic = self._cache.topic(name)
            if topic is not None:
                outcomes[name] = TopicOutcome(name, topic)
            elif name in made or code in _LATER:
                outcomes[name] = TopicOutcome(name, error=UnknownTopicOrPartitionError())
            else:
                self._complaints.tell(name, text or code.name)
                outcomes[name] = TopicOutcome(name, error=KafkaError.of(code, text or ""))
        return outcomes

    def _new_topic(self, name: str) -> wire.CreateTopicsRequest.CreatableTopic:
        """What Kafka's brokers ask for: the partitions and the factor of their own settings."""
        request = wire.CreateTopicsRequest
        config, most = self._settings.config, self._most_replicas()
        if not is_internal(name):
            factor = config.get("default.replication.factor")
            return request.CreatableTopic(
                name=name,
                num_partitions=config.get("num.partitions"),
                replication_factor=factor if most is None else min(factor, most),
            )
        spec = internal_topic(name, config, most)
        return request.CreatableTopic(
            name=name,
            num_partitions=spec.num_partitions,
            replication_factor=spec.replication_factor,
            configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in spec.configs.items()],
        )

    async def _seen(self, names: Sequence[str]) -> None:
        """Wait until this broker's image has the topics, for WAIT_SECONDS at most."""
        await self._metadata.wait_until(lambda: all(self._cache.topic(name) for name in names), WAIT_SECONDS)

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is None:
            outcome = (await self.auto_create_topics([name]))[name]
            if outcome.error is not None and not isinstance(outcome.error, UnknownTopicOrPartitionError):
                raise again(outcome.error)
            topic = outcome.topic
        if topic is None:
            raise CoordinatorNotAvailableError()
        return topic

    async def create_group_topics(
        self, requests: Sequence[NewTopic], quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        """In this broker's own name, whose quota the controllers count."""
        creation = wire.CreateTopicsRequest
        topics = [
            creation.CreatableTopic(
                name=each.name,
                num_partitions=each.num_partitions,
                replication_factor=each.replication_factor,
                configs=[creation.CreatableTopicConfig(name=name, value=value) for name, value in each.configs.items()],
            )
            for each in requests
        ]
        answer = await self._channel.create_topics(creation(topics=topics, timeout_ms=CREATION_TIMEOUT_MS))
        refused = {each.name: ErrorCode(each.error_code) for each in answer.topics if each.error_code}
        texts = {each.name: each.error_message for each in answer.topics}
        return [
            TopicOutcome(each.name, error=KafkaError.of(refused[each.name], texts[each.name]))
            if each.name in refused
            else TopicOutcome(each.name)
            for each in requests
        ]

    # What the broker reports and asks for itself

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        if broker.epoch < 0:
            raise NotControllerError("this broker is not registered")
        return await self._channel.alter_partitions(broker, changes)

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        return await self._channel.allocate_producer_ids(broker)

    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        """The heartbeats tell of directories that have failed; the controllers know what is in them."""
        if report.offline:
            self._disks_failed()
