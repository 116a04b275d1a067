"""The controller of a host over a real store, and workers that follow it, in one process."""

from __future__ import annotations

from pathlib import Path

from kbroker.cluster.requests import BrokerEpoch, NewTopic, ReplicaReport
from kbroker.cluster.stored_image import stored_image
from kbroker.cluster.workers.host_controller import HostController
from kbroker.config import BrokerConfig
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, Endpoint, PartitionImage
from kbroker.metadata.local_store import LocalStore
from tests.unbroken import UNBROKEN, finished

NOTHING = ReplicaReport()


class Host:
    """Worker 1's controller; a second one on the same directory is that of the next start."""

    def __init__(self, directory: Path, **values: str) -> None:
        config = BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in values.items()})
        self.store = LocalStore.open(directory / "metadata.sqlite")
        self.cache = MetadataCache(stored_image(self.store, config, 1))
        self.is_stopping = False
        self.controller = HostController(self.cache, self.store, BrokerSettings(config, self.cache, 1), 1, UNBROKEN)
        self.controller.is_stopping = lambda: self.is_stopping

    def enter(self, node_id: int, report: ReplicaReport = NOTHING, epoch: int = -1) -> BrokerEpoch:
        """A worker comes."""
        broker = BrokerImage(node_id, {"PLAINTEXT": Endpoint("127.0.0.1", 9000 + node_id)}, epoch=epoch)
        found = finished(self.controller.enter(broker, report))
        assert isinstance(found, BrokerEpoch)
        return found

    def create(self, name: str, partitions: int, replication_factor: int) -> None:
        """A topic."""
        (outcome,) = finished(self.controller.create_topics([NewTopic(name, partitions, replication_factor)]))
        assert outcome.error is None

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        """A partition as it is by now."""
        return self.cache.image.topics[name].partitions[index]

    def leaders(self, name: str) -> list[int]:
        """Who leads a topic's partitions."""
        return [each.leader for each in self.cache.image.topics[name].partitions]
