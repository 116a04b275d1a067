"""A controller over a real store, with as many brokers as a test wants, and what follows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker._fast.base.slices import Slices
from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation
from kbroker.cluster.stored_image import stored_image
from kbroker.config import BrokerConfig
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, BrokersImage, ConfigResource, MetadataDelta
from kbroker.metadata.store import MetadataStore, StoreCalls
from tests.unbroken import UNBROKEN, finished


class Metadata:
    """Cache, settings and controller of node `node_id`."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        brokers: Iterable[BrokerImage] = (),
        node_id: int = 1,
        slices: Slices = UNBROKEN,
        call: StoreCalls | None = None,
    ) -> None:
        self.store = store
        self.cache = MetadataCache(stored_image(store, config, node_id))
        self.settings = BrokerSettings(config, self.cache, node_id)
        self.controller = LocalController(self.cache, store, self.settings, node_id, slices, call)
        known = {broker.node_id: broker for broker in brokers}
        self.cache.apply(MetadataDelta(brokers=BrokersImage(known, node_id)))

    def replace_configs(
        self, kind: ConfigResourceType, name: str, wanted: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Give a resource these settings and no others; raises what it is refused with."""
        edits = [ConfigEdit(key, EditOperation.SET, value) for key, value in wanted.items()]
        alteration = ConfigAlteration(ConfigResource(kind, name), edits, replace=True)
        (error,) = finished(self.controller.alter_configs([alteration], validate_only))
        if error is not None:
            raise error
