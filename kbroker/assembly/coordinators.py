"""The coordinators of a broker: groups of all kinds, the state of share groups, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.assembly.share_parts import ShareParts
from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
from kbroker.coordinator.consumer.consumer_groups import ConsumerGroups
from kbroker.coordinator.consumer.settings import GroupSettings
from kbroker.coordinator.runtime.background import Threads
from kbroker.coordinator.streams.internal_topics import InternalTopics
from kbroker.coordinator.streams.settings import GroupSettings as StreamsGroupSettings
from kbroker.coordinator.streams.streams_groups import StreamsGroups
from kbroker.coordinator.transactions.assembly import transaction_coordinator
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from kbroker.replication.transaction_markers import MarkerWriter

if TYPE_CHECKING:
    from kbroker.assembly.coordinator_basis import CoordinatorBasis
    from kbroker.periodic import PeriodicTask


class Coordinators:
    """All of them, made at once; `start` has them load, `stop` ends them."""

    def __init__(self, basis: CoordinatorBasis) -> None:
        config, settings, clock, cache = basis.config, basis.settings, basis.clock, basis.cache
        background = self._background = Threads(basis.loop, config.get("group.coordinator.background.threads"))
        self.state_log = basis.state_log(GROUP_METADATA_TOPIC)
        groups = self.groups = GroupCoordinator(
            config, clock, basis.loop, self.state_log, cache, basis.slices, basis.may_be_superseded
        )
        of_consumers = GroupSettings(config, cache)
        settings.subscribe(of_consumers.follow)
        self.consumer_groups = ConsumerGroups(groups, of_consumers, clock, cache, background)
        settings.subscribe(self.consumer_groups.end_repetitions)
        of_streams = StreamsGroupSettings(config, cache)
        settings.subscribe(of_streams.follow)
        self.streams_groups = StreamsGroups(groups, of_streams, clock, cache, background)
        self.internal_topics = InternalTopics(basis.controller, clock)
        # Before the group coordinator starts, which loads their groups.
        self.share = ShareParts(basis, groups.registry, basis.state_log(SHARE_GROUP_STATE_TOPIC))
        self.markers = MarkerWriter(basis.replicas, clock, {GROUP_METADATA_TOPIC: groups})
        self.transactions = transaction_coordinator(
            config,
            clock,
            basis.loop,
            basis.replicas,
            cache,
            basis.producer_ids,
            basis.make_markers(self.markers),
            basis.max_batch_bytes,
            basis.slices,
            basis.may_be_superseded,
        )

    def start(self) -> None:
        """Begin to load their state topics; until a partition is loaded, its requests get a retriable error."""
        self.groups.start()
        self.share.coordinator.start()
        self.transactions.start()

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """What they do by themselves."""
        yield from self.groups.periodic_tasks()
        yield from self.transactions.periodic_tasks()
        yield from self.share.periodic_tasks()

    def stop(self) -> None:
        """Answer the requests that wait in the coordinators, and refuse new ones."""
        self.groups.stop()
        self._background.close()
        self.transactions.stop()
        self.share.coordinator.stop()
