"""The coordinators of a broker: groups of all kinds, the state of share groups, transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
from kbroker.coordinator.consumer.consumer_groups import ConsumerGroups
from kbroker.coordinator.consumer.settings import GroupSettings
from kbroker.coordinator.runtime.background import Threads
from kbroker.coordinator.streams.internal_topics import InternalTopics
from kbroker.coordinator.streams.settings import GroupSettings as StreamsGroupSettings
from kbroker.coordinator.streams.streams_groups import StreamsGroups
from kbroker.coordinator.transactions.assembly import transaction_coordinator
from kbroker.handlers import share_parts
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from kbroker.replication.state_log import PartitionStateLog
from kbroker.replication.transaction_markers import MarkerWriter

if TYPE_CHECKING:
    import asyncio

    from kbroker.config import BrokerConfig
    from kbroker.coordinator.transactions.completion import Markers
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import TopicImage
    from kbroker.periodic import PeriodicTask


class Coordinators:
    """Makes them, gives them to the handlers and has them load; `max_batch_bytes` is a topic's."""

    def __init__(
        self,
        config: BrokerConfig,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        max_batch_bytes: Callable[[TopicImage | None], int],
        make_markers: Callable[[MarkerWriter], Markers],
    ) -> None:
        """`make_markers`: what writes markers into the partitions of all brokers."""
        self._config = config
        self._services = services
        self._loop = loop
        self._max_batch_bytes = max_batch_bytes
        self._make_markers = make_markers
        self._background = Threads(loop, config.get("group.coordinator.background.threads"))

    def start(self) -> None:
        """Begin to load what their topics hold; each answers with a retriable error meanwhile."""
        self._start_groups()
        self._start_transactions()

    def _state_log(self, topic: str) -> PartitionStateLog:
        cache = self._services.metadata_cache
        return PartitionStateLog(
            topic,
            self._services.replica_manager,
            lambda: self._max_batch_bytes(cache.topic(topic)),
            self._loop.call_soon,
        )

    def _start_groups(self) -> None:
        services, config = self._services, self._config
        cache = services.metadata_cache
        state_log = services.state_log = self._state_log(GROUP_METADATA_TOPIC)
        groups = services.group_coordinator = GroupCoordinator(config, services.clock, self._loop, state_log, cache)
        settings = GroupSettings(config, cache)
        services.broker_settings.subscribe(settings.follow)
        services.consumer_groups = ConsumerGroups(groups, settings, services.clock, cache, self._background)
        services.broker_settings.subscribe(services.consumer_groups.end_repetitions)
        self._start_streams(groups)
        share_parts.prepare(services, self._loop, self._state_log(SHARE_GROUP_STATE_TOPIC))
        groups.start()
        services.share_coordinator.start()

    def _start_streams(self, groups: GroupCoordinator) -> None:
        services = self._services
        settings = StreamsGroupSettings(self._config, services.metadata_cache)
        services.broker_settings.subscribe(settings.follow)
        services.streams_groups = StreamsGroups(
            groups, settings, services.clock, services.metadata_cache, self._background
        )
        services.internal_topics = InternalTopics(services.controller, services.clock)

    def _start_transactions(self) -> None:
        services = self._services
        services.markers = MarkerWriter(
            services.replica_manager, services.clock, {GROUP_METADATA_TOPIC: services.group_coordinator}
        )
        services.transaction_coordinator = transaction_coordinator(
            self._config,
            services.clock,
            self._loop,
            services.replica_manager,
            services.metadata_cache,
            services.producer_ids,
            self._make_markers(services.markers),
            self._max_batch_bytes,
        )
        services.transaction_coordinator.start()

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """What they do by themselves."""
        yield from self._services.group_coordinator.periodic_tasks()
        yield from self._services.transaction_coordinator.periodic_tasks()
        yield from share_parts.periodic_tasks(self._services)

    def stop(self) -> None:
        """Answer what waits for them; they take nothing new."""
        self._services.group_coordinator.stop()
        self._background.close()
        self._services.transaction_coordinator.stop()
        self._services.share_coordinator.stop()
