"""The parts of a broker that serve share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.coordinator.share.share_coordinator import ShareCoordinator
from kbroker.coordinator.share.share_groups import ShareGroups
from kbroker.coordinator.share.share_states import ShareStates
from kbroker.metadata.group_configs import GROUP_RESOURCE
from kbroker.metadata.image import ConfigResource
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.replication.share.settings import NO_SETTINGS, GroupSettings
from kbroker.replication.share.share_partitions import SharePartitions
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker.assembly.coordinator_basis import CoordinatorBasis
    from kbroker.coordinator.classic.group_registry import GroupRegistry
    from kbroker.periodic import PeriodicTask
    from kbroker.replication.state_log import PartitionStateLog


class ShareParts:
    """Their coordinator, the states and partitions behind it, and the groups.  `registry`: of groups of all kinds."""

    def __init__(self, basis: CoordinatorBasis, registry: GroupRegistry, state_log: PartitionStateLog) -> None:
        config, cache, replicas = basis.config, basis.cache, basis.replicas
        settings = GroupSettings(
            lambda: basis.settings.config,
            lambda group_id: cache.image.configs.get(ConfigResource(GROUP_RESOURCE, group_id), NO_SETTINGS),
        )
        self.coordinator = ShareCoordinator(
            basis.settings.config,
            config.node_id,
            state_log,
            basis.clock,
            basis.loop.call_later,
            cache,
            lambda index, offset: replicas.partition(SHARE_GROUP_STATE_TOPIC, index).log.delete_records_before(
                Offset(offset)
            ),
            basis.slices,
        )
        self.states = ShareStates(self.coordinator, cache, config.node_id, basis.share_elsewhere)
        self.partitions = SharePartitions(
            replicas,
            self.states,
            basis.clock,
            basis.loop,
            settings,
            basis.settings.config.get("group.share.max.share.sessions"),
        )
        self.groups = ShareGroups(
            registry,
            self.states,
            basis.controller,
            cache,
            basis.clock,
            settings,
            basis.settings.config.get("offsets.commit.timeout.ms"),
            basis.slices,
            basis.settings.config.get("group.share.initialize.retry.interval.ms"),
        )
        cache.subscribe(self.partitions.on_metadata)
        cache.subscribe(self.groups.on_metadata)

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """What is to be run now and then."""
        yield from self.partitions.periodic_tasks()
        yield from self.coordinator.periodic_tasks()
        yield from self.groups.periodic_tasks()
