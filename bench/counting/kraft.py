"""Two brokers of a KRaft cluster under the simulation's controllers, which do not count."""

from __future__ import annotations

import random

from bench.counting.counted import Counted, Serve, good
from bench.counting.machine import Machine
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import META_PROPERTIES, MetaProperties, encode_meta_properties
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.cluster.kraft.controllers import VOTERS, endpoint_of
from tests.simulation.kraft.cluster import METADATA_LEVEL
from tests.simulation.kraft.quorum import TICK_SECONDS, SimulatedControllers
from tests.simulation.kraft.serving import nodes_of
from tests.simulation.kraft.state import record_of

CLUSTER_ID = "a-counted-cluster-id00"
SESSION_SECONDS = 9.0
SEED = 1
TOPIC_RESOURCE, SET = 2, 0


class Quorum:
    """Three controllers of the model, on a machine's network."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        first = [record_of(wire.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_LEVEL))]
        self._controllers = SimulatedControllers(machine.loop, random.Random(SEED), SESSION_SECONDS, first, self._look)
        self._nodes = nodes_of(self._controllers, machine.network)
        self._tick()

    def start(self, node: int) -> None:
        """Start a broker, as an operator does for the first time."""
        folder = str(self._machine.log_dir(node))
        SYSTEM_FILES.makedirs(folder)
        meta = MetaProperties(CLUSTER_ID, node, bytes([node]) * 16)
        SYSTEM_FILES.write_atomic(f"{folder}/{META_PROPERTIES}", encode_meta_properties(meta))
        servers = ",".join(f"{endpoint_of(each).host}:{endpoint_of(each).port}" for each in VOTERS)
        self._machine.start(
            node,
            {
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": servers,
                "controller.listener.names": "CONTROLLER",
            },
        )

    def _tick(self) -> None:
        self._controllers.look_at_sessions()
        self._look()
        loop = self._machine.loop
        loop.at(loop.now_ns + int(TICK_SECONDS * 1e9), self._tick)

    def _look(self) -> None:
        for each in getattr(self, "_nodes", {}).values():
            each.look()


def forwarded(counted: Counted) -> Serve:
    """A change of a topic's setting, which the controllers decide on; the broker applies what they wrote."""
    topic = counted.topic(replicas=(counted.node,))

    def change(value: str) -> wire.IncrementalAlterConfigsRequest:
        config = wire.IncrementalAlterConfigsRequest.AlterableConfig(
            name="retention.ms", config_operation=SET, value=value
        )
        resource = wire.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config]
        )
        return wire.IncrementalAlterConfigsRequest(resources=[resource])

    def serve() -> None:
        good(counted.ask(change("86400000"), 1).responses[0])

    return serve
