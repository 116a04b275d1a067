"""A broker that is a cluster of its own, and its own controller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership, MetadataParts
from kbroker.assembly.membership.stored_metadata import StoredMetadata
from kbroker.assembly.replication_figures import own_controller_figures
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.stored_image import stored_image
from kbroker.handlers.cluster.endpoints import local_broker
from kbroker.replication.leader_changes import report_at_start
from kbroker.replication.log_dir_failure_handler import reason_to_halt
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.log_placement import all_cordoned

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.families import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.periodic import PeriodicTask
    from kbroker.storage.directories.log_dirs import OpenedDirs


class SingleNode(ClusterMembership):
    """See `ClusterMembership`."""

    keeps_metadata = True
    controller: LocalController
    _parts: MetadataParts
    _registered: BrokerEpoch

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._metadata = StoredMetadata(broker.log_manager)

    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        config = self._broker.config
        image = stored_image(self._metadata.open(dirs), config, config.node_id)
        self._metadata.claim(image, config)
        return image

    def connect(self, parts: MetadataParts) -> None:
        self._parts = parts
        broker, metadata = self._broker, self._metadata
        self.controller = self.administration = self._controller = LocalController(
            parts.cache,
            metadata.store,
            parts.settings,
            broker.config.node_id,
            broker.slices,
            metadata.calls,
            parts.hosts,
        )

    async def catch_up(self) -> ClusterImage:
        """Registers the broker before its logs load, so that each log directory has the new broker epoch."""
        config = self._broker.config
        self._registered, last = await self._controller.register_broker(local_broker(config, config.node_id))
        self._broker.log_manager.begin_epoch(self._registered.epoch, last.epoch)
        return self._parts.cache.image

    async def report_logs(self) -> None:
        """LogDirError where no log directory is left."""
        log_manager, cache, replicas = self._broker.log_manager, self._parts.cache, self._parts.replicas
        if (reason := reason_to_halt(log_manager)) is not None:
            raise LogDirError(reason)
        report = report_at_start(cache.image, self._broker.config.node_id, log_manager)
        await self.controller.report_replicas(self._registered, report)
        replicas.roles.apply_image(cache.image)
        cache.subscribe(replicas.roles.apply)
        self._controller.all_cordoned = partial(all_cordoned, log_manager)
        self._metadata.watch()

    def broker(self) -> BrokerEpoch:
        return self._registered

    def follow(self, config: BrokerConfig) -> None:
        self._parts.replicas.roles.apply_image(self._parts.cache.image)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        return self._metadata.periodic_tasks()

    def problems(self) -> Iterable[Problem]:
        return self._metadata.problems()

    async def figures(self, pace: Pace) -> Values:
        return await own_controller_figures(self._parts.cache.image, pace)

    def release(self) -> None:
        self._metadata.close()
