"""Three brokers on loopback, kbroker's or Apache Kafka's, with equal settings: with ZooKeeper (Kafka 3.9.1), or under a
KRaft controller of Kafka 4.3.1."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.brokers import EQUAL_SETTINGS, KAFKA_VERSION, Broker, BrokerError, _launch
from kbroker.schemas import schema, wire
from kbroker.testing.ports import free_port
from tests.cluster.kraft.processes import FIRST_CONTROLLER, JavaNode, format_directory
from tests.cluster.one_request import ask_port
from tests.compat.tooling import OLD_KAFKA_VERSION, kafka_jars, old_kafka_jars
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

BROKERS = (1, 2, 3)
METADATA_VERSION = schema("MetadataRequest").first_version("topics.topic_id")
SESSION_SECONDS = 4.0
SETTINGS: dict[str, str] = EQUAL_SETTINGS | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
}
SESSION_MS = str(round(SESSION_SECONDS * 1000))


class Keeper(Protocol):
    """Who keeps the metadata beside the brokers, and what it says of them."""

    def membership(self, number: int) -> dict[str, str]:
        """What a broker is told to be in the cluster."""

    def prepare(self, number: int, data: pathlib.Path) -> None:
        """Make a broker's directory what it has to be before its first start."""

    def kafka(self) -> tuple[str, pathlib.Path, str]:
        """Version and jars of Kafka's brokers, and how they log errors alone."""

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """`leader` and `isr` of each partition of a topic."""

    def controller(self) -> int:
        """The broker that is the controller, -1 where there is none."""

    def registered(self) -> set[int]:
        """The living brokers."""


class WithZooKeeper:
    """See `Keeper`."""

    def __init__(self, server: ZooKeeperServer, client: KazooClient) -> None:
        self._server = server
        self._client = client

    def membership(self, number: int) -> dict[str, str]:
        return {
            "broker.id": str(number),
            "zookeeper.connect": self._server.address,
            "zookeeper.session.timeout.ms": SESSION_MS,
        }

    def prepare(self, number: int, data: pathlib.Path) -> None:
        return

    def kafka(self) -> tuple[str, pathlib.Path, str]:
        logging = data_file("log4j.properties", "log4j.rootLogger=ERROR\n")
        return OLD_KAFKA_VERSION, old_kafka_jars(), f"-Dlog4j.configuration=file:{logging}"

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        folder = f"/brokers/topics/{topic}/partitions"
        try:
            names = self._client.get_children(folder)
            return {int(each): json.loads(self._client.get(f"{folder}/{each}/state")[0]) for each in names}
        except NoNodeError:
            return {}

    def controller(self) -> int:
        try:
            return int(json.loads(self._client.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return -1

    def registered(self) -> set[int]:
        return {int(each) for each in self._client.get_children("/brokers/ids")}


class WithController:
    """See `Keeper`.  `ports` are the brokers' own, which are asked what they know."""

    def __init__(self, node: JavaNode, ports: Mapping[int, int]) -> None:
        self.node = node
        self._ports = ports

    def membership(self, number: int) -> dict[str, str]:
        return {
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.voters": f"{self.node.node_id}@127.0.0.1:{self.node.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "broker.session.timeout.ms": SESSION_MS,
            "transaction.state.log.replication.factor": "3",
            "share.coordinator.state.topic.replication.factor": "3",
        }

    def prepare(self, number: int, data: pathlib.Path) -> None:
        format_directory(str(data), number)

    def kafka(self) -> tuple[str, pathlib.Path, str]:
        jars = kafka_jars()
        return KAFKA_VERSION, jars, f"-Dlog4j2.configurationFile={jars / 'log4j2-ERROR.properties'}"

    def _metadata(self, *topics: str) -> Any:
        rows = [wire.MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
        for port in self._ports.values():
            try:
                return ask_port(port, wire.MetadataRequest(topics=rows), METADATA_VERSION, timeout=20)
            except OSError:
                continue
        return None

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        metadata = self._metadata(topic)
        rows = [] if metadata is None else metadata.topics[0].partitions
        return {each.partition_index: {"leader": each.leader_id, "isr": each.isr_nodes} for each in rows}

    def controller(self) -> int:
        return -1

    def registered(self) -> set[int]:
        metadata = self._metadata()
        return set() if metadata is None else {each.node_id for each in metadata.brokers}


def data_file(name: str, text: str) -> pathlib.Path:
    """A small file of that content, which stays."""
    path = pathlib.Path(tempfile.gettempdir()) / f"kbroker-bench-{os.getuid()}-{name}"
    path.write_text(text)
    return path


class Cluster:
    """Brokers by id, and who keeps their metadata."""

    def __init__(
        self, name: str, keeper: Keeper, folder: pathlib.Path, settings: Mapping[str, str], ports: Mapping[int, int]
    ) -> None:
        self.name = name
        self.brokers: dict[int, Broker] = {}
        self.watches_loops = False
        """Whether a kbroker that is started says when its loop is held (`bench.held_loop`)."""
        self._keeper = keeper
        self._folder = folder
        self._settings = dict(settings)
        self._ports = dict(ports)

    @property
    def bootstrap(self) -> str:
        """All brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, number: int) -> None:
        """Start one on its directory."""
        folder, port = self._folder / f"broker-{number}", self._ports[number]
        folder.mkdir(exist_ok=True)
        settings = {
            **SETTINGS,
            **self._settings,
            **self._keeper.membership(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
        }
        self._keeper.prepare(number, folder / "data")
        if self.name == "kbroker":
            settings["metrics.listener"] = "none"
            overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
            module = "bench.held_loop" if self.watches_loops else "kbroker.cli"
            argv = [sys.executable, "-m", module, "start", *overrides]
            self.brokers[number] = _launch("kbroker", argv, folder, port, dict(os.environ), "")
            return
        properties = folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        version, jars, logging = self._keeper.kafka()
        heap = os.environ.get("KAFKA_HEAP", "1g")
        tuning = [f"-Xms{heap}", f"-Xmx{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        tuning += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        argv = ["java", *tuning, logging, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        self.brokers[number] = _launch("kafka", argv, folder, port, dict(os.environ), version)

    def output(self, number: int) -> pathlib.Path:
        """What a broker has printed."""
        return self._folder / f"broker-{number}" / "output"

    def log_count(self, number: int) -> int:
        """How many partitions have a directory of a broker's."""
        return sum(each.is_dir() for each in (self._folder / f"broker-{number}" / "data").iterdir())

    def cpu_seconds(self) -> float:
        """Of all brokers."""
        return sum(each.cpu_seconds() for each in self.brokers.values())

    def admin(self) -> AdminClient:
        """An admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 120_000, "log_level": 0})

    def create(self, topic: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None) -> None:
        """With these replicas; until all are in sync."""
        admin = self.admin()
        new = NewTopic(topic, len(assignment), replica_assignment=[*map(list, assignment)], config=dict(configs or {}))
        admin.create_topics([new], operation_timeout=120, request_timeout=180)[topic].result(200)
        self.wait(lambda: self.in_sync(topic, range(len(assignment)), len(assignment[0])), f"{topic} in sync")

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        """`leader` and `isr` of a partition, which there is."""
        return self._keeper.states(topic)[partition]

    def in_sync(self, topic: str, partitions: Sequence[int], count: int) -> bool:
        """Whether so many replicas of each are."""
        states = self._keeper.states(topic)
        return all(each in states and len(states[each]["isr"]) == count for each in partitions)

    def controller(self) -> int:
        """Its id, -1 where there is none, or no broker is one."""
        return self._keeper.controller()

    def registered(self) -> set[int]:
        """The living brokers."""
        return self._keeper.registered()

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 120.0, every: float = 0.01) -> None:
        """BrokerError when it does not come true."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerError(f"{self.name}: waited {seconds:g} s for {what}")
            time.sleep(every)


@contextmanager
def running(
    name: str, settings: Mapping[str, str] | None = None, *, is_kraft: bool = False, watches_loops: bool = False
) -> Iterator[Cluster]:
    """A new cluster, all of whose brokers are registered and know each other; its data go with it."""
    with tempfile.TemporaryDirectory(prefix=f"bench-cluster-{name}-") as text:
        folder = pathlib.Path(text)
        ports = {each: free_port() for each in BROKERS}
        with _with_controller(folder, ports) if is_kraft else _with_zookeeper(folder) as keeper:
            cluster = Cluster(name, keeper, folder, settings or {}, ports)
            cluster.watches_loops = watches_loops
            try:
                for each in BROKERS:
                    cluster.start(each)
                cluster.wait(lambda: cluster.registered() == set(BROKERS), "brokers")
                for each in BROKERS:
                    cluster.wait(lambda each=each: knows_all(cluster, each), "metadata", every=0.1)
                yield cluster
            finally:
                for broker in cluster.brokers.values():
                    if broker.process is not None and broker.process.poll() is None:
                        broker.kill()


@contextmanager
def _with_zookeeper(folder: pathlib.Path) -> Iterator[Keeper]:
    with zookeeper_server(folder / "zookeeper") as server:
        client = KazooClient(server.address)
        client.start()
        try:
            yield WithZooKeeper(server, client)
        finally:
            client.stop()
            client.close()


@contextmanager
def _with_controller(folder: pathlib.Path, ports: Mapping[int, int]) -> Iterator[Keeper]:
    port = free_port()
    node = JavaNode(
        FIRST_CONTROLLER,
        folder / "controller",
        port,
        {
            "process.roles": "controller",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{FIRST_CONTROLLER}@127.0.0.1:{port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "broker.session.timeout.ms": SESSION_MS,
        },
        heap="512m",
    )
    node.start()
    try:
        yield WithController(node, ports)
    finally:
        node.kill()


def knows_all(cluster: Cluster, number: int) -> bool:
    """Whether a broker's metadata have all brokers."""
    broker = cluster.brokers[number]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0})
    return len(admin.list_topics(timeout=10).brokers) == len(BROKERS)
