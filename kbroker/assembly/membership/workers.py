"""A broker that is a worker of its host: worker 1 is the controller, and all follow the images that it publishes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership, MetadataParts
from kbroker.assembly.membership.controlled_shutdown import move_leaders
from kbroker.assembly.membership.replication_parts import ReplicationParts
from kbroker.assembly.membership.settings import inter_broker_listener
from kbroker.assembly.membership.stored_metadata import StoredMetadata
from kbroker.assembly.membership.zookeeper import with_ports
from kbroker.assembly.replication_figures import member_figures
from kbroker.cluster.member import unless_stopping
from kbroker.cluster.requests import NO_BROKER_EPOCH
from kbroker.cluster.workers.member import WORKERS_LISTENER, with_near_endpoint
from kbroker.handlers.endpoints import local_broker
from kbroker.metadata.store import StoreCalls
from kbroker.replication.leader_changes import held_logs, report_at_start
from kbroker.storage.manager.known_directories import claim_directories

if TYPE_CHECKING:
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.cluster.workers.member import Worker
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.maintenance import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.network.listener import Listener
    from kbroker.periodic import PeriodicTask, Pieces
    from kbroker.replication.marker_sender import MarkerSender
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.storage.directories.log_dirs import OpenedDirs
    from kbroker.types import TopicPartition


class WorkersMembership(ClusterMembership):
    """See `ClusterMembership`.  Only worker 1 has a metadata store."""

    has_console = False
    """A console is about one broker."""
    _parts: MetadataParts
    _replication: ReplicationParts
    _is_attached = False

    def __init__(self, broker: BrokerParts, worker: Worker) -> None:
        self._broker = broker
        self._worker = worker
        self.keeps_metadata = worker.place.is_controller
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
            metadata.claim(image, node_id, self._worker.place.others(node_id))
        return image

    def connect(self, parts: MetadataParts) -> None:
        self._parts = parts
        worker = self._worker
        self._replication = ReplicationParts(self._broker, parts, WORKERS_LISTENER, lambda: worker.epoch)
        self.controller = worker.controller(parts.cache, parts.settings, parts.hosts)

    async def catch_up(self) -> ClusterImage:
        self._worker.load(self._parts.cache)
        return self._parts.cache.image

    async def report_logs(self) -> None:
        """Returns once the controller knows which worker's copy of each partition goes furthest."""
        parts, log_manager, node_id = self._parts, self._broker.log_manager, self._broker.config.node_id
        replicas, cache = parts.replicas, parts.cache
        self._replication.attach(self.controller)
        self._is_attached = True
        replicas.fetchers = self._replication.fetchers
        report = report_at_start(cache.image, node_id, log_manager, all_on_one_host=True)
        await self._worker.report_logs(report, held_logs(cache.image, node_id, log_manager))
        replicas.apply_image(cache.image)
        cache.subscribe(replicas.apply)
        if self._metadata is not None:
            self._metadata.watch()

    async def wait_for_others(self) -> None:
        await self._worker.wait_for_workers()

    async def serve(self, listeners: Sequence[Listener]) -> None:
        config = self._broker.config
        ports = {each.name: each.port for each in listeners}
        near = inter_broker_listener(config)
        host = next(each.host for each in config.listeners if each.name == near)
        shown = with_near_endpoint(with_ports(local_broker(config, config.node_id), ports), ports[near], host)
        await unless_stopping(self._broker.stopping, self._worker.register(shown))
        self._broker.log_manager.begin_epoch(self._worker.epoch, NO_BROKER_EPOCH)

    def broker(self) -> BrokerEpoch:
        return self._replication.broker()

    def markers(self, writer: MarkerWriter) -> MarkerSender:
        return self._replication.send_markers(writer)

    def coordinators_elsewhere(self) -> NodeClients:
        return self._replication.coordinators_elsewhere()

    def follow(self, config: BrokerConfig) -> None:
        self._replication.follow(config)

    def lost(self, names: Collection[TopicPartition]) -> None:
        self._replication.lost(names)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        stored = () if self._metadata is None else self._metadata.periodic_tasks()
        return (*stored, *self._replication.periodic_tasks())

    def problems(self) -> Iterable[Problem]:
        return self._worker.problems()

    async def figures(self, pieces: Pieces) -> Values:
        return await member_figures(self._replication, self._worker.controller_stats, pieces)

    @property
    def metrics_listener(self) -> str:
        """The supervisor's: it gathers those of all workers."""
        return f"unix:{self._worker.place.metrics_socket}"

    async def leave(self) -> None:
        await move_leaders(self._broker.config, self.controller, self.broker(), self._parts.cache)

    async def close(self) -> None:
        if self._is_attached:
            self._replication.close()
        await self._worker.close()
        if self._is_attached:
            self._replication.channel.close()

    def release(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
