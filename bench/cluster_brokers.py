"""Three brokers and ZooKeeper on loopback, kbroker's or Apache Kafka 3.9.1's, with equal settings."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.brokers import EQUAL_SETTINGS, Broker, BrokerError, _launch
from kbroker.testing.ports import free_port
from tests.compat.tooling import OLD_KAFKA_VERSION, old_kafka_jars
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

BROKERS = (1, 2, 3)
SESSION_SECONDS = 4.0
SETTINGS = EQUAL_SETTINGS | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": str(round(SESSION_SECONDS * 1000)),
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
}


class Cluster:
    """Brokers by id, and a look into ZooKeeper."""

    def __init__(self, name: str, server: ZooKeeperServer, folder: pathlib.Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.brokers: dict[int, Broker] = {}
        self._server = server
        self._folder = folder
        self._settings = dict(settings)
        self._ports = {each: free_port() for each in BROKERS}
        self.zookeeper = KazooClient(server.address)

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
            "broker.id": str(number),
            "zookeeper.connect": self._server.address,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
        }
        if self.name == "kbroker":
            settings["metrics.listener"] = "none"
            overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
            argv = [sys.executable, "-m", "kbroker.cli", "start", *overrides]
            self.brokers[number] = _launch("kbroker", argv, folder, port, dict(os.environ), "")
            return
        properties = folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = old_kafka_jars()
        (folder / "log4j.properties").write_text("log4j.rootLogger=ERROR\n")
        heap = os.environ.get("KAFKA_HEAP", "1g")
        tuning = [f"-Xms{heap}", f"-Xmx{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        tuning += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        logging = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
        argv = ["java", *tuning, logging, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        self.brokers[number] = _launch("kafka", argv, folder, port, dict(os.environ), OLD_KAFKA_VERSION)

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
        """The partition's znode."""
        found: dict[str, Any] = json.loads(
            self.zookeeper.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0]
        )
        return found

    def in_sync(self, topic: str, partitions: Sequence[int], count: int) -> bool:
        """Whether so many replicas of each are."""
        return all(
            self.zookeeper.exists(f"/brokers/topics/{topic}/partitions/{each}/state")
            and len(self.state(topic, each)["isr"]) == count
            for each in partitions
        )

    def controller(self) -> int:
        """Its id, -1 where there is none."""
        try:
            return int(json.loads(self.zookeeper.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return -1

    def registered(self) -> set[int]:
        """The ids in ZooKeeper."""
        return {int(each) for each in self.zookeeper.get_children("/brokers/ids")}

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 120.0, every: float = 0.01) -> None:
        """BrokerError when it does not come true."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerError(f"{self.name}: waited {seconds:g} s for {what}")
            time.sleep(every)


@contextmanager
def running(name: str, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A new cluster, all of whose brokers are registered and know each other; its data go with it."""
    with tempfile.TemporaryDirectory(prefix=f"bench-cluster-{name}-") as text:
        folder = pathlib.Path(text)
        with zookeeper_server(folder / "zookeeper") as server:
            cluster = Cluster(name, server, folder, settings or {})
            cluster.zookeeper.start()
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
                cluster.zookeeper.stop()
                cluster.zookeeper.close()


def knows_all(cluster: Cluster, number: int) -> bool:
    """Whether a broker's metadata have all brokers."""
    broker = cluster.brokers[number]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0})
    return len(admin.list_topics(timeout=10).brokers) == len(BROKERS)
