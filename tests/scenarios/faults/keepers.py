"""Who keeps a cluster's metadata beside its brokers: ZooKeeper, or a controller of Apache Kafka 4.3.1."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kbroker.schemas import schema, wire
from tests.cluster.kraft.processes import FIRST_CONTROLLER, QUORUM_SETTINGS, JavaNode, format_directory
from tests.cluster.one_request import ask_port
from tests.ports import free_port
from tests.scenarios.faults.proxy import Proxies, Proxy
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

METADATA_VERSION = schema("MetadataRequest").first_version("topics.topic_id")


class Keeper(ABC):
    """See the module.  `link`: what the brokers' way to it is called among the faults."""

    link: str
    actions: tuple[str, ...] = ()
    """Faults that it has itself."""

    @abstractmethod
    def proxy(self) -> Proxy:
        """The way of one broker."""

    @abstractmethod
    def settings(self, number: int, proxy: Proxy) -> dict[str, str]:
        """What a broker is given to be in the cluster."""

    @abstractmethod
    def prepare(self, number: int, data_dir: Path) -> None:
        """Make a broker's directory what it has to be before its first start."""

    @abstractmethod
    def controller(self) -> int:
        """The broker that is the controller, -1 where there is none."""

    @abstractmethod
    def registered(self) -> int:
        """How many brokers there are."""

    @abstractmethod
    def out_of_sync(self, brokers: set[int]) -> dict[str, Any]:
        """Partitions, of internal topics, too, with a replica that is not in the ISR, or without a leader."""

    def begin(self, action: str) -> None:
        """One of its own faults."""
        raise NotImplementedError(action)

    def recover(self) -> None:
        """None of its own faults any more."""
        return


class ZooKeeperKeeper(Keeper):
    """ZooKeeper, and a look into it past the proxies."""

    link = "zookeeper"

    def __init__(self, server: ZooKeeperServer, proxies: Proxies) -> None:
        self._server = server
        self._proxies = proxies
        self.client = KazooClient(server.address)

    def proxy(self) -> Proxy:
        return self._proxies.to(self._server.port)

    def settings(self, number: int, proxy: Proxy) -> dict[str, str]:
        return {"broker.id": str(number), "zookeeper.connect": f"127.0.0.1:{proxy.port}"}

    def prepare(self, number: int, data_dir: Path) -> None:
        return

    def json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.client.get(path)[0])
        return found

    def controller(self) -> int:
        try:
            return int(self.json("/controller")["brokerid"])
        except NoNodeError:
            return -1

    def registered(self) -> int:
        try:
            return len(self.client.get_children("/brokers/ids"))
        except NoNodeError:
            return 0

    def out_of_sync(self, brokers: set[int]) -> dict[str, Any]:
        found = {}
        for topic in self.client.get_children("/brokers/topics"):
            for partition in self.client.get_children(f"/brokers/topics/{topic}/partitions"):
                state = self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")
                if set(state["isr"]) != brokers or state["leader"] < 0:
                    found[f"{topic}-{partition}"] = state
        return found


class ControllerKeeper(Keeper):
    """A controller whose brokers all come by one proxy, as its endpoint is told to all of them."""

    link = "controllers"
    actions = ("kill controller", "stop controller")

    def __init__(self, folder: Path, proxies: Proxies) -> None:
        port = free_port()
        self._way = proxies.to(port)
        self.voters = f"{FIRST_CONTROLLER}@127.0.0.1:{self._way.port}"
        self.node = JavaNode(
            FIRST_CONTROLLER,
            folder,
            port,
            {
                **QUORUM_SETTINGS,
                "process.roles": "controller",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": self.voters,
                "listeners": f"CONTROLLER://127.0.0.1:{port}",
                "advertised.listeners": f"CONTROLLER://127.0.0.1:{self._way.port}",
                "broker.session.timeout.ms": "3000",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": "2",
            },
            heap="256m",
        )
        self.ports: list[int] = []
        self._is_killed = self._is_stopped = False

    def proxy(self) -> Proxy:
        return self._way

    def settings(self, number: int, proxy: Proxy) -> dict[str, str]:
        return {
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "3",
            "share.coordinator.state.topic.min.isr": "2",
        }

    def prepare(self, number: int, data_dir: Path) -> None:
        format_directory(str(data_dir), number)

    def controller(self) -> int:
        return -1

    def _told(self) -> Iterable[Any]:
        """What each broker tells, past the proxies."""
        for port in self.ports:
            try:
                yield ask_port(port, wire.MetadataRequest(topics=None), METADATA_VERSION, timeout=10)
            except OSError:
                continue

    def registered(self) -> int:
        return max((len(each.brokers) for each in self._told()), default=0)

    def out_of_sync(self, brokers: set[int]) -> dict[str, Any]:
        """As the brokers tell it, each of them."""
        found: dict[str, Any] = {}
        told = 0
        for metadata in self._told():
            told += 1
            for topic in metadata.topics:
                for partition in topic.partitions:
                    if set(partition.isr_nodes) != brokers or partition.leader_id < 0:
                        name = f"{topic.name}-{partition.partition_index}"
                        found[name] = {"isr": partition.isr_nodes, "leader": partition.leader_id}
        if told < len(self.ports):
            found["brokers that do not answer"] = len(self.ports) - told
        return found

    def begin(self, action: str) -> None:
        if self._is_killed or self._is_stopped:
            return
        if action == "kill controller":
            self.node.kill()
            self._is_killed = True
        else:
            self.node.pause()
            self._is_stopped = True

    def recover(self) -> None:
        if self._is_killed:
            self.node.start()
        if self._is_stopped:
            self.node.resume()
        self._is_killed = self._is_stopped = False


@contextmanager
def zookeeper_keeper(folder: Path, proxies: Proxies) -> Iterator[ZooKeeperKeeper]:
    """ZooKeeper, until the end."""
    with zookeeper_server(folder / "zookeeper") as server:
        keeper = ZooKeeperKeeper(server, proxies)
        keeper.client.start()
        try:
            yield keeper
        finally:
            keeper.client.stop()
            keeper.client.close()


@contextmanager
def controller_keeper(folder: Path, proxies: Proxies) -> Iterator[ControllerKeeper]:
    """A controller, until the end."""
    keeper = ControllerKeeper(folder / "controller", proxies)
    keeper.node.start()
    try:
        yield keeper
    finally:
        keeper.node.kill()
