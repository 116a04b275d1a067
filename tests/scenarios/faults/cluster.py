"""Three brokers of one cluster, each behind three proxies: its clients, the other brokers, and ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.broker_process import BrokerProcess, answers_api_versions
from tests.compat.old_kafka import OLD_SETTINGS
from tests.compat.tooling import old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.scenarios.faults.proxy import Proxies, Proxy, State
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

BROKERS = (1, 2, 3)
PARTITIONS = 3
START_SECONDS = 240.0
SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "metrics.listener": "none",
}


class OldKafkaProcess(BrokerProcess):
    """The same with a broker of Apache Kafka 3.9.1, which knows no setting of kbroker's own."""

    def command(self) -> list[str]:
        """The command line of a start, over a file with the settings."""
        properties = self.directory / "server.properties"
        settings = {**OLD_SETTINGS, "log.dirs": str(self.data_dir), **self.overrides}
        settings = {key: value for key, value in settings.items() if key != "metrics.listener"}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return old_java_command("kafka.Kafka", str(properties), heap="320m")


KINDS: dict[str, type[BrokerProcess]] = {"kbroker": BrokerProcess, "kafka": OldKafkaProcess}


class Node:
    """One broker; its directory and all its ports stay over restarts."""

    def __init__(
        self,
        number: int,
        folder: Path,
        zookeeper_port: int,
        proxies: Proxies,
        settings: Mapping[str, str],
        kind: type[BrokerProcess],
    ) -> None:
        self.number = number
        port, between = free_port(), free_port()
        self.clients = proxies.to(port)
        self.brokers = proxies.to(between)
        self.zookeeper = proxies.to(zookeeper_port)
        self.process = kind(
            folder,
            {
                **SETTINGS,
                **settings,
                "broker.id": str(number),
                "listeners": f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{between}",
                "advertised.listeners": (
                    f"CLIENTS://127.0.0.1:{self.clients.port},BROKERS://127.0.0.1:{self.brokers.port}"
                ),
                "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
            },
            port=port,
        )

    @property
    def links(self) -> dict[str, Proxy]:
        """The proxies by name."""
        return {"clients": self.clients, "brokers": self.brokers, "zookeeper": self.zookeeper}

    def knows_all(self) -> bool:
        """Whether its metadata have all brokers; until then it says that there are none."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.process.port}", "log_level": 0})
        return len(admin.list_topics(timeout=10).brokers) == len(BROKERS)

    def records(self, topic: str, partition: int) -> bytes:
        """The log of a partition, all segments in order."""
        folder = self.process.data_dir / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


class Cluster:
    """The brokers, and a look into ZooKeeper past the proxies."""

    def __init__(
        self,
        server: ZooKeeperServer,
        folder: Path,
        proxies: Proxies,
        settings: Mapping[str, str],
        kind: type[BrokerProcess],
    ) -> None:
        self.proxies = proxies
        self.nodes = {
            each: Node(each, folder / f"broker-{each}", server.port, proxies, settings, kind) for each in BROKERS
        }
        self.zookeeper = KazooClient(server.address)

    @property
    def bootstrap(self) -> str:
        """For clients, through the proxies."""
        return ",".join(f"127.0.0.1:{each.clients.port}" for each in self.nodes.values())

    def admin(self) -> AdminClient:
        """An admin client of its own."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 20_000, "log_level": 0})

    def create(self, topics: list[str]) -> None:
        """With the leaders of each spread over the brokers."""
        spread = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        new = [NewTopic(each, PARTITIONS, replica_assignment=spread) for each in topics]
        admin = self.admin()
        for future in admin.create_topics(new).values():
            future.result(30)

    def _json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.zookeeper.get(path)[0])
        return found

    def controller(self) -> int:
        """Its id, -1 where there is none."""
        try:
            return int(self._json("/controller")["brokerid"])
        except NoNodeError:
            return -1

    def registered(self) -> int:
        """How many brokers there are."""
        try:
            return len(self.zookeeper.get_children("/brokers/ids"))
        except NoNodeError:
            return 0

    def out_of_sync(self) -> dict[str, dict[str, Any]]:
        """Partitions, of internal topics, too, with a replica that is not in the ISR, or without a leader."""
        found = {}
        for topic in self.zookeeper.get_children("/brokers/topics"):
            for partition in self.zookeeper.get_children(f"/brokers/topics/{topic}/partitions"):
                state = self._json(f"/brokers/topics/{topic}/partitions/{partition}/state")
                if set(state["isr"]) != set(BROKERS) or state["leader"] < 0:
                    found[f"{topic}-{partition}"] = state
        return found

    def settle(self, seconds: float = 60.0) -> None:
        """Until every replica is in sync."""
        wait_for(lambda: not self.out_of_sync() or None, "all replicas in sync", seconds=seconds, every=0.1)

    def log_tails(self, size: int = 3000) -> str:
        """The end of what each broker said."""
        return "\n".join(f"--- broker {each.number}\n{each.process.output()[-size:]}" for each in self.nodes.values())

    @staticmethod
    def _serves(node: Node) -> bool:
        if not node.process.running:
            # It may have waited for ZooKeeper in vain.
            node.process.spawn()
        return answers_api_versions(node.process.port)

    def recover(self) -> None:
        """No fault any more: every process runs, and every link is open."""
        for node in self.nodes.values():
            for link in node.links.values():
                self.proxies.set(link, State.OPEN)
            if node.process.running:
                node.process.resume()
            else:
                node.process.spawn()
        for node in self.nodes.values():
            wait_for(partial(self._serves, node), f"broker {node.number} to serve", seconds=START_SECONDS)


@contextmanager
def running(
    folder: Path, settings: Mapping[str, str] | None = None, kind: type[BrokerProcess] = BrokerProcess
) -> Iterator[Cluster]:
    """A cluster whose brokers are all registered."""
    proxies = Proxies()
    with zookeeper_server(folder / "zookeeper") as server:
        cluster = Cluster(server, folder, proxies, settings or {}, kind)
        cluster.zookeeper.start()
        try:
            cluster.recover()
            wait_for(lambda: cluster.registered() == len(BROKERS), "brokers", seconds=START_SECONDS)
            for node in cluster.nodes.values():
                wait_for(node.knows_all, f"broker {node.number} to know the others", seconds=60)
            yield cluster
        finally:
            for node in cluster.nodes.values():
                if node.process.running:
                    node.process.kill()
            cluster.zookeeper.stop()
            cluster.zookeeper.close()
            proxies.close()
