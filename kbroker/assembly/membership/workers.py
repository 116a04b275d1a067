"""A broker that is a worker of its host: worker 1 is the controller, and all follow the images that it publishes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
from kbroker.assembly.membership.replicated_membership import ReplicatedMembership
from kbroker.assembly.membership.settings import inter_broker_listener
from kbroker.assembly.membership.stored_metadata import StoredMetadata
from kbroker.cluster.member import unless_stopping
from kbroker.cluster.requests import NO_BROKER_EPOCH
from kbroker.cluster.workers.member import WORKERS_LISTENER, with_near_endpoint
from kbroker.cluster.workers.worker_slot import worker_directory
from kbroker.metadata.store import StoreCalls
from kbroker.replication.leader_changes import held_logs, report_at_start
from kbroker.replication.stray_replicas import replicas_deleted
from kbroker.storage.manager.known_directories import claim_directories

if TYPE_CHECKING:
    from kbroker.cluster.workers.member import Worker
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.metrics.readiness import Problem
    from kbroker.network.listener import Listener
    from kbroker.periodic import PeriodicTask
    from kbroker.storage.directories.log_dirs import OpenedDirs


class WorkersMembership(ReplicatedMembership):
    """See `ClusterMembership`.  Only worker 1 has a metadata store."""

    def __init__(self, broker: BrokerParts, worker: Worker) -> None:
        super().__init__(broker, worker)
        self._worker = worker
        self.keeps_metadata = worker.slot.is_controller
        self._metadata = StoredMetadata(broker.log_manager) if self.keeps_metadata else None

    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        broker, metadata = self._broker, self._metadata
        node_id = broker.config.node_id
        store = None if metadata is None else metadata.open(dirs)
        calls = StoreCalls() if metadata is None else metadata.calls
        image = await unless_stopping(broker.stopping, self._worker.open(store, calls))
        if metadata is None:
            claim_directories(broker.log_manager, image.cluster_id)
        else:
            metadata.claim(image, broker.config, self._worker.slot.others(node_id), self._directories_of_others())
        return image

    def _directories_of_others(self) -> list[str]:
        """The log directories of the other workers, as far as they are there by now."""
        files, numbers = self._broker.log_manager.environment.files, range(2, self._worker.slot.count + 1)
        paths = [worker_directory(each, number) for each in self._broker.config.log_dirs for number in numbers]
        return [path for path in paths if files.exists(path)]

    def connect(self, parts: MetadataParts) -> None:
        self._replicate(parts, WORKERS_LISTENER)
        self.controller = self.administration = self._worker.controller(parts.cache, parts.settings, parts.hosts)

    async def catch_up(self) -> ClusterImage:
        self._worker.load(self._parts.cache)
        return self._parts.cache.image

    async def report_logs(self) -> None:
        """Returns once the controller knows which worker's copy of each partition goes furthest."""
        parts, log_manager, node_id = self._parts, self._broker.log_manager, self._broker.config.node_id
        replicas, cache = parts.replicas, parts.cache
        self._attach()
        replicas.roles.fetchers = self._replication.fetchers
        report = report_at_start(cache.image, node_id, log_manager, all_on_one_host=True)
        await self._worker.report_logs(
            report, lambda: held_logs(cache.image, node_id, log_manager, self._broker.slices.pace())
        )
        # The controller may have deleted topics while the logs were loaded and while this worker waited for the others.
        for name in replicas_deleted(cache.image, log_manager.logs):
            replicas.roles.drop(name, delete=True)
        replicas.roles.apply_image(cache.image)
        cache.subscribe(replicas.roles.apply)
        if self._metadata is not None:
            self._metadata.watch()

    async def wait_for_others(self) -> None:
        await self._worker.wait_for_workers()

    def _shown(self, broker: BrokerImage, ports: Mapping[str, int]) -> BrokerImage:
        near = inter_broker_listener(self._broker.config)
        host = next(each.host for each in self._broker.config.listeners if each.name == near)
        return with_near_endpoint(broker, ports[near], host)

    async def serve(self, listeners: Sequence[Listener]) -> None:
        await super().serve(listeners)
        self._broker.log_manager.begin_epoch(self._worker.epoch, NO_BROKER_EPOCH)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        stored = () if self._metadata is None else self._metadata.periodic_tasks()
        return (*stored, *super().periodic_tasks())

    def problems(self) -> Iterable[Problem]:
        stored = () if self._metadata is None else self._metadata.problems()
        return (*stored, *super().problems())

    @property
    def metrics_listener(self) -> str:
        """The supervisor's: it gathers those of all workers."""
        return f"unix:{self._worker.slot.metrics_socket}"

    def release(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
