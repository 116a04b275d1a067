"""The controller of all workers of a host: the one of a single node, with brokers that come and go.

It runs in worker 1.  A worker that comes gets a broker epoch of its own, and leads again the partitions that had no
leader without it.  From the moment that its connection ends, a worker leads nothing and is in no ISR.  When the whole
host stops, nothing is moved: the next start finds every partition as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.replica_reports import after_losses, reported, started_anew, with_broker, without_broker
from kbroker.cluster.requests import NO_BROKER_EPOCH, BrokerEpoch, HeldLog, ReplicaReport

if TYPE_CHECKING:
    from kbroker.metadata.image import BrokerImage
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")


class HostController(LocalController):
    """`is_stopping()`: the whole host stops."""

    __slots__ = ("is_stopping",)

    is_stopping: Callable[[], bool]

    async def enter(self, broker: BrokerImage, report: ReplicaReport) -> BrokerEpoch:
        """Take a worker into the cluster.  A worker that only reconnects keeps its epoch."""
        node_id, epoch = broker.node_id, broker.epoch
        has_started = epoch == NO_BROKER_EPOCH
        async with self._changing:
            if has_started:
                epoch, _ = await self._call(self._store.begin_broker_epoch, node_id)
            image = self._metadata.written
            brokers = {**image.brokers, node_id: replace(broker, epoch=epoch)}
            come = replace(image, brokers=brokers)
            updates, _ = reported(come, self._settings.config, node_id, report)
            if has_started:
                started_anew(come, node_id, report, updates)
            await with_broker(come, self._settings.config, node_id, updates, self._slices.pace())
            await self._change_brokers(brokers, updates.delta().changed)
        logger.info("worker %d has come, epoch %d", node_id, epoch)
        return BrokerEpoch(node_id, epoch)

    async def lost(self, broker: BrokerEpoch, is_back: Callable[[], bool] = lambda: False) -> None:
        """A worker is gone; nothing where it has come back by now.  `is_back`: whether the worker has entered again
        over another connection, with the epoch that it had; called when it is this change's turn."""
        async with self._changing:
            image = self._metadata.written
            known = image.brokers.get(broker.node_id)
            if known is None or known.is_fenced or known.epoch != broker.epoch or self.is_stopping():
                return
            if is_back():
                return
            left = {**image.brokers, broker.node_id: replace(known, is_fenced=True)}
            updates = await without_broker(image, self._settings.config, broker.node_id, left, self._slices.pace())
            await self._change_brokers(left, updates.delta().changed)
        logger.warning("worker %d is gone: %d partitions have another leader, or none", broker.node_id, len(updates))

    async def missing(self, node_id: int) -> None:
        """A worker has not come since this start: what it led has to be led by others."""
        async with self._changing:
            image = self._metadata.written
            if node_id in image.brokers or self.is_stopping():
                return
            updates = await without_broker(image, self._settings.config, node_id, image.brokers, self._slices.pace())
            await self._commit(updates)
        logger.warning("worker %d has not come: %d partitions have another leader, or none", node_id, len(updates))

    async def report_logs(self, held: Mapping[int, Mapping[TopicPartition, HeldLog]]) -> None:
        """What workers have of their partitions after a start: none leads with less than another one has."""
        async with self._changing:
            updates = after_losses(self._metadata.written, self._settings.config, held)
            if updates:
                await self._commit(updates)
        if updates:
            logger.warning("%d partitions have replicas that may lack records; others lead them now", len(updates))

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        if broker.node_id != self._node_id:
            await self.lost(broker)
        return []
