"""The controller of a cluster that is this node: decisions over the cache's image, stored in SQLite, then published.

A change goes, in this order, to the store (durable), to the image (visible) and to the cache's subscribers (logs made
or dropped), all before the method returns (`MetadataWriter`).  A request for several topics is one transaction over
those that pass their checks; the others have their own errors.  When the store fails, nothing has changed and the error
is raised.

The store is called in a thread, and plans are made in slices of the loop's time.  One change is under way at a time,
from its checks to its last image.  The one other publisher is the broker itself, when a log directory has failed
(`log_dir_failure_handler`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster import topics as plans
from kbroker.cluster.controller.deciding import DecidingController, log_topics
from kbroker.cluster.metadata_writer import MetadataWriter, rebased
from kbroker.cluster.replica_reports import reported, without_broker
from kbroker.cluster.requests import BrokerEpoch, ReplicaReport
from kbroker.errors import BrokerIdNotRegisteredError, InvalidRequestError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, BrokersImage, ClusterImage, MetadataDelta, TopicChange
from kbroker.metadata.store import MetadataStore, MetadataStoreError, ProducerIdBlock, StoreCalls
from kbroker.quotas.host_names import HostNames
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.metadata.broker_settings import BrokerSettings

logger = logging.getLogger("kbroker.cluster")


class LocalController(DecidingController):
    """The only writer of the cluster's metadata, besides a broker that loses a log directory."""

    __slots__ = ("_cache", "_call", "_store", "all_cordoned")

    _metadata: MetadataWriter

    def __init__(
        self,
        cache: MetadataCache,
        store: MetadataStore,
        settings: BrokerSettings,
        node_id: int,
        slices: Slices,
        call: StoreCalls | None = None,
        hosts: HostNames | None = None,
    ) -> None:
        super().__init__(settings, node_id, slices, hosts)
        self._cache = cache
        self._store = store
        self._call = call or StoreCalls()
        self._metadata = MetadataWriter(cache, self._write, slices, log_topics)
        self._collisions = plans.CollisionIndex(cache.image.topics)
        self.all_cordoned: Callable[[], bool] = lambda: False
        cache.subscribe(self._on_change)

    def _on_change(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        self._collisions.update((topic.name for topic in delta.created), [topic.name for topic in delta.deleted])

    def _takers(self) -> list[BrokerImage]:
        """A single node takes new partitions unless all its log directories are cordoned."""
        return [] if self.all_cordoned() else super()._takers()

    def _most_replicas(self) -> int | None:
        return len(self._metadata.written.brokers)

    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        node_id = broker.node_id
        async with self._changing:
            updates, unserved = reported(self._metadata.written, self._settings.config, node_id, report)
            try:
                await self._commit(updates)
            except MetadataStoreError as error:
                # An epoch that is not stored would fall back at the next start: these partitions go offline in the
                # epochs that they have.
                logger.error(
                    "New leader epochs of %d partitions can't be stored, so the old ones stay: %s", len(updates), error
                )
                self._cache.apply(rebased(unserved.delta(), self._cache.image))

    async def _write(self, delta: MetadataDelta) -> None:
        """Have it on disk; brokers are not kept there."""
        if not replace(delta, brokers=None).is_empty():
            await self._call(self._store.write, delta)

    def image(self) -> ClusterImage:
        return self._cache.image

    # Brokers

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """Nothing is left to move: there is no other broker."""
        return []

    async def register_broker(self, broker: BrokerImage) -> tuple[BrokerEpoch, BrokerEpoch]:
        """Take the one broker in: its epoch from now on, and the one of before.  -1: none, or it cannot be stored."""
        async with self._changing:
            epoch, last = await self._call(self._store.begin_broker_epoch)
            await self._change_brokers({**self._metadata.written.brokers, broker.node_id: replace(broker, epoch=epoch)})
        return BrokerEpoch(broker.node_id, epoch), BrokerEpoch(broker.node_id, last)

    async def unregister_broker(self, node_id: int) -> None:
        async with self._changing:
            image = self._metadata.written
            if node_id not in image.brokers:
                raise BrokerIdNotRegisteredError(f"Broker ID {node_id} is not currently registered")
            if node_id == self._node_id:
                raise InvalidRequestError(f"Broker {node_id} is the controller itself and can't be unregistered.")
            left = {each: broker for each, broker in image.brokers.items() if each != node_id}
            updates = await without_broker(image, self._settings.config, node_id, left, self._slices.pace())
            await self._commit(updates)
            await self._change_brokers(left)

    async def _change_brokers(self, brokers: Mapping[int, BrokerImage], changed: tuple[TopicChange, ...] = ()) -> None:
        """Partitions and brokers change in one image: no broker takes one for the other's."""
        await self._metadata.change(MetadataDelta(changed=changed, brokers=BrokersImage(brokers, self._node_id)))

    # The cluster

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        self._check_epoch(broker)
        return await self._call(self._store.allocate_producer_id_block)
