"""Moves leadership of a broker's partitions to other brokers, before it stops serving."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.cluster.controller.interface import Administration
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache

logger = logging.getLogger("kbroker.cluster")


async def move_leaders(
    config: BrokerConfig, controller: Administration, broker: BrokerEpoch, cache: MetadataCache
) -> None:
    """Ask the controller as often as `controlled.shutdown.max.retries` says; what is left is logged."""
    if not config.get("controlled.shutdown.enable") or broker.epoch < 0:
        return
    for attempt in range(config.get("controlled.shutdown.max.retries")):
        if attempt:
            await asyncio.sleep(config.get("controlled.shutdown.retry.backoff.ms") / 1000)
        try:
            remaining = await controller.controlled_shutdown(broker)
        except KafkaError as error:
            logger.warning("the controller cannot move this broker's leaders: %s", error)
            continue
        if not remaining:
            return
        if not any(each.node_id != broker.node_id for each in cache.image.alive_brokers()):
            logger.info("%d partitions go offline: no other broker of the cluster is there", len(remaining))
            return
        logger.info("%d partitions are still led by this broker", len(remaining))
    logger.warning("the broker stops with partitions that no other broker leads yet")
