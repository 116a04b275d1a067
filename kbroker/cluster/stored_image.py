"""The image that a start begins with: what the store holds, and what a new cluster has from its first moment."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.metadata.broker_settings import BROKER_RESOURCE, with_min_insync
from kbroker.metadata.image import ClusterImage, ConfigResource, MetadataDelta
from kbroker.metadata.store import MetadataStoreError

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.store import MetadataStore

logger = logging.getLogger("kbroker.cluster")


def stored_image(store: MetadataStore, config: BrokerConfig, node_id: int) -> ClusterImage:
    """The image, still without brokers.  MetadataStoreError when the store cannot be read."""
    return ClusterImage.of(
        store.cluster_id,
        controller_id=node_id,
        topics=store.topics(),
        features=store.features(),
        configs=_configs(store, config),
        quotas=store.client_quotas(),
        security=store.security(),
    )


def _configs(store: MetadataStore, config: BrokerConfig) -> Mapping[ConfigResource, Mapping[str, str]]:
    stored = store.configs()
    brokers = {resource.name: values for resource, values in stored.items() if resource.kind == BROKER_RESOURCE}
    configs: dict[ConfigResource, Mapping[str, str]] = dict(stored)
    for broker, settings in with_min_insync(brokers, config).items():
        resource = ConfigResource(BROKER_RESOURCE, broker)
        if settings == stored.get(resource):
            continue
        configs[resource] = settings
        try:
            store.write(MetadataDelta(configs={resource: settings}))
        except MetadataStoreError as error:
            # In force without it, and tried again at the next start.
            logger.warning("cannot store the settings of brokers that a cluster begins with: %s", error)
    return configs
