"""Makes the parts of a broker that serve share groups, and says what they do by themselves."""

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

if TYPE_CHECKING:
    import asyncio

    from kbroker.handlers.services import Services
    from kbroker.periodic import PeriodicTask
    from kbroker.replication.state_log import PartitionStateLog


def prepare(services: Services, loop: asyncio.AbstractEventLoop, state_log: PartitionStateLog) -> None:
    """Make them; before the group coordinator starts, which loads their groups.  `state_log`: of the share state."""
    cache, replicas, config = services.metadata_cache, services.replica_manager, services.config
    settings = GroupSettings(
        lambda: services.config,
        lambda group_id: cache.image.configs.get(ConfigResource(GROUP_RESOURCE, group_id), NO_SETTINGS),
    )
    coordinator = services.share_coordinator = ShareCoordinator(
        config,
        services.node_id,
        state_log,
        services.clock,
        loop.call_later,
        cache,
        lambda index, offset: replicas.partition(SHARE_GROUP_STATE_TOPIC, index).log.delete_records_before(offset),
    )
    states = services.share_states = ShareStates(coordinator, cache, services.node_id, services.coordinators_elsewhere)
    services.share_partitions = SharePartitions(
        replicas, states, services.clock, loop, settings, config.get("group.share.max.share.sessions")
    )
    services.share_groups = ShareGroups(
        services.group_coordinator.registry,
        states,
        services.controller,
        cache,
        services.clock,
        settings,
        config.get("offsets.commit.timeout.ms"),
        services.slices,
        config.get("group.share.initialize.retry.interval.ms"),
    )
    cache.subscribe(services.share_partitions.on_metadata)
    cache.subscribe(services.share_groups.on_metadata)


def periodic_tasks(services: Services) -> Iterator[PeriodicTask]:
    """What is to be run now and then."""
    yield from services.share_partitions.periodic_tasks()
    yield from services.share_coordinator.periodic_tasks()
    yield from services.share_groups.periodic_tasks()
