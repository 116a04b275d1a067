"""Brokers of kbroker and of Apache Kafka 3.9.1 as processes of one cluster with real ZooKeeper, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kbroker.testing.security import Security
from tests.broker_process import BrokerProcess
from tests.cluster.cluster_clients import PATIENCE, ClusterClients
from tests.compat.old_kafka import OLD_SETTINGS
from tests.compat.tooling import ROOT, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "auto.create.topics.enable": "false",
}


class Kbroker:
    """One broker of kbroker; its directory and port stay over restarts."""

    kind = "kbroker"

    def __init__(
        self,
        node_id: int,
        folder: Path,
        zookeeper: str,
        settings: Mapping[str, str],
        port: int | None = None,
        security: Security | None = None,
    ) -> None:
        self.node_id = node_id
        overrides = {
            **SETTINGS,
            "broker.id": str(node_id),
            "zookeeper.connect": zookeeper,
            "metrics.listener": "none",
            **settings,
        }
        self.port = port or free_port()
        self._process = BrokerProcess(folder, overrides, port=self.port, security=security)
        self.log = folder

    def start(self) -> None:
        self._process.start()

    def spawn(self) -> None:
        """Start it without waiting for it."""
        self._process.spawn()

    def ended_by(self, number: signal.Signals) -> int:
        """The exit status after one signal, which has to end it within a minute and a half."""
        os.kill(self._process.pid, number)
        return self._process.wait(90)

    def kill(self) -> None:
        if self._process.process is not None:
            self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def output(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.log.glob("*.log")))


class Kafka:
    """One broker of Apache Kafka 3.9.1."""

    kind = "kafka"

    def __init__(
        self,
        node_id: int,
        folder: Path,
        zookeeper: str,
        settings: Mapping[str, str],
        security: Security | None = None,
    ) -> None:
        self.node_id = node_id
        self.port = free_port()
        secured: dict[str, str] = {}
        if security is not None:
            assert security.directory is not None
            secured = security.settings(security.directory, self.port)
        self._folder = self.log = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            **OLD_SETTINGS,
            **SETTINGS,
            "broker.id": str(node_id),
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            **secured,
            **settings,
        }

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        with (self._folder / "kafka.out").open("ab") as output:
            self._process = subprocess.Popen(
                old_java_command("kafka.Kafka", str(properties), heap="320m"),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def output(self) -> str:
        return (self._folder / "kafka.out").read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            self._process.wait(60)
            self._process = None


Node = Kbroker | Kafka


class Cluster(ClusterClients):
    """Brokers 1 to n, and a look into ZooKeeper: `connect` is what brokers have for it."""

    def __init__(
        self,
        servers: Sequence[ZooKeeperServer],
        folder: Path,
        kinds: Sequence[type[Node]],
        settings: Mapping[str, str],
        chroot: str = "",
        zookeeper: KazooClient | None = None,
        security: Security | None = None,
    ) -> None:
        """`{id}` in a setting's value stands for the broker's id."""
        self.security = security
        self.server = servers[0]
        self.connect = ",".join(each.address for each in servers) + chroot
        self.nodes: dict[int, Node] = {}
        for number, kind in enumerate(kinds, 1):
            own = {name: text.replace("{id}", str(number)) for name, text in settings.items()}
            self.nodes[number] = kind(number, folder / f"broker-{number}", self.connect, own, security=security)
        self.zookeeper = zookeeper or KazooClient(self.connect)

    def brokers(self) -> Iterable[Node]:
        return self.nodes.values()

    def json(self, path: str) -> Any:
        data, _ = self.zookeeper.get(path)
        return json.loads(data)

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        found: dict[str, Any] = self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return found

    def registered(self) -> set[int]:
        return {int(each) for each in self.zookeeper.get_children("/brokers/ids")}

    def controller(self) -> int:
        try:
            return int(self.json("/controller")["brokerid"])
        except NoNodeError:
            return -1

    def wait_registered(self, wanted: set[int]) -> None:
        wait_for(lambda: self.registered() == wanted, f"brokers {wanted} to be registered", seconds=PATIENCE)

    def wait_isr(self, topic: str, partitions: int, wanted: set[int]) -> None:
        def settled() -> bool:
            return all(set(self.state(topic, each)["isr"]) == wanted for each in range(partitions))

        wait_for(settled, f"the ISR of {topic} to be {wanted}", seconds=PATIENCE)


@contextmanager
def running(
    folder: Path,
    kinds: Sequence[type[Node]],
    settings: Mapping[str, str] | None = None,
    servers: Sequence[ZooKeeperServer] = (),
    chroot: str = "",
    zookeeper: KazooClient | None = None,
    security: Security | None = None,
) -> Iterator[Cluster]:
    """A cluster whose brokers have started one after the other; without `servers` with a ZooKeeper of its own."""
    with ExitStack() as ended:
        found = servers or [ended.enter_context(zookeeper_server(folder / "zookeeper"))]
        cluster = Cluster(found, folder, kinds, settings or {}, chroot, zookeeper, security)
        with warnings.catch_warnings():
            # The first broker makes the chroot.
            warnings.filterwarnings("ignore", message="No chroot path exists")
            cluster.zookeeper.start()
        try:
            for number, node in cluster.nodes.items():
                node.start()
                if number == 1:
                    # The first one is the controller.
                    wait_for(lambda: cluster.controller() == 1, "a controller", seconds=PATIENCE)
            cluster.wait_registered(set(cluster.nodes))
            cluster.wait_known(set(cluster.nodes))
            yield cluster
        except BaseException:
            for node in cluster.nodes.values():
                print(f"--- {node.node_id}\n{node.output()[-4000:]}")
            raise
        finally:
            for node in cluster.nodes.values():
                node.kill()
            cluster.zookeeper.stop()
            cluster.zookeeper.close()
