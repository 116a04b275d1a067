"""Three brokers of one cluster, each behind three proxies: to its clients, the others, and who keeps the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.schemas import wire
from tests.broker_process import BrokerProcess, answers_api_versions
from tests.cluster.one_request import ask_port
from tests.compat.old_kafka import OLD_SETTINGS
from tests.compat.tooling import java_command, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.scenarios.faults.keepers import (
    METADATA_VERSION,
    ControllerKeeper,
    Keeper,
    controller_keeper,
    zookeeper_keeper,
)
from tests.scenarios.faults.proxy import Proxies, Proxy, State

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


class JavaProcess(BrokerProcess):
    """The same with a broker of Apache Kafka, which knows no setting of kbroker's own."""

    unknown: frozenset[str] = frozenset({"metrics.listener"})
    more: Mapping[str, str] = {}

    def properties(self) -> str:
        """A file with the settings."""
        path = self.directory / "server.properties"
        settings = {**self.more, "log.dirs": str(self.data_dir), **self.overrides}
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if key not in self.unknown))
        return str(path)


class OldKafkaProcess(JavaProcess):
    """Of Apache Kafka 3.9.1."""

    more = OLD_SETTINGS

    def command(self) -> list[str]:
        """The command line of a start."""
        return old_java_command("kafka.Kafka", self.properties(), heap="320m")


class KafkaProcess(JavaProcess):
    """Of Apache Kafka 4.3.1, under a controller."""

    unknown = frozenset({"metrics.listener", "zookeeper.session.timeout.ms", "controlled.shutdown.retry.backoff.ms"})

    def command(self) -> list[str]:
        """The command line of a start."""
        return java_command("kafka.Kafka", self.properties(), heap="320m", level="INFO")


@dataclass(frozen=True, slots=True)
class Kind:
    """Whose brokers, in the order of their ids, and who keeps their metadata."""

    brokers: tuple[type[BrokerProcess], ...]
    keeper: Callable[[Path, Proxies], AbstractContextManager[Keeper]] = zookeeper_keeper

    @property
    def has_kafka(self) -> bool:
        """Whether a broker is not kbroker's: Apache Kafka answers partitions in an order of its own."""
        return any(each is not BrokerProcess for each in self.brokers)


KINDS: dict[str, Kind] = {
    "kbroker": Kind((BrokerProcess,) * 3),
    "kafka": Kind((OldKafkaProcess,) * 3),
    "kraft": Kind((BrokerProcess,) * 3, controller_keeper),
    "kraft-mixed": Kind((BrokerProcess, KafkaProcess, BrokerProcess), controller_keeper),
    "kraft-kafka": Kind((KafkaProcess,) * 3, controller_keeper),
}


class Node:
    """One broker; its directory and all its ports stay over restarts."""

    def __init__(
        self,
        number: int,
        folder: Path,
        keeper: Keeper,
        proxies: Proxies,
        settings: Mapping[str, str],
        kind: type[BrokerProcess],
    ) -> None:
        self.number = number
        port, between = free_port(), free_port()
        self.clients = proxies.to(port)
        self.brokers = proxies.to(between)
        self.keeper = keeper
        self._way = keeper.proxy()
        self.process = kind(
            folder,
            {
                **SETTINGS,
                **keeper.settings(number, self._way),
                **settings,
                "listeners": f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{between}",
                "advertised.listeners": (
                    f"CLIENTS://127.0.0.1:{self.clients.port},BROKERS://127.0.0.1:{self.brokers.port}"
                ),
            },
            port=port,
        )
        keeper.prepare(number, self.process.data_dir)

    @property
    def links(self) -> dict[str, Proxy]:
        """The proxies by name."""
        return {"clients": self.clients, "brokers": self.brokers, self.keeper.link: self._way}

    def knows_all(self) -> bool:
        """Whether its metadata have all brokers; until then it says that there are none."""
        told = ask_port(self.process.port, wire.MetadataRequest(topics=[]), METADATA_VERSION, timeout=10)
        return len(told.brokers) == len(BROKERS)

    def records(self, topic: str, partition: int) -> bytes:
        """The log of a partition, all segments in order."""
        folder = self.process.data_dir / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


class Cluster:
    """The brokers, and who keeps their metadata."""

    def __init__(
        self,
        keeper: Keeper,
        folder: Path,
        proxies: Proxies,
        settings: Mapping[str, str],
        kind: Kind,
    ) -> None:
        self.proxies = proxies
        self.keeper = keeper
        self.nodes = {
            each: Node(each, folder / f"broker-{each}", keeper, proxies, settings, process)
            for each, process in zip(BROKERS, kind.brokers, strict=True)
        }

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

    def controller(self) -> int:
        """The broker that is the controller, -1 where there is none."""
        return self.keeper.controller()

    def out_of_sync(self) -> dict[str, Any]:
        """Partitions with a replica that is not in the ISR, or without a leader."""
        return self.keeper.out_of_sync(set(BROKERS))

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
        self.keeper.recover()
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
    folder: Path, settings: Mapping[str, str] | None = None, kind: Kind = KINDS["kbroker"]
) -> Iterator[Cluster]:
    """A cluster whose brokers are all registered."""
    proxies = Proxies()
    with kind.keeper(folder, proxies) as keeper:
        cluster = Cluster(keeper, folder, proxies, settings or {}, kind)
        if isinstance(keeper, ControllerKeeper):
            keeper.ports += [node.process.port for node in cluster.nodes.values()]
        try:
            cluster.recover()
            wait_for(lambda: keeper.registered() == len(BROKERS), "brokers", seconds=START_SECONDS)
            for node in cluster.nodes.values():
                wait_for(node.knows_all, f"broker {node.number} to know the others", seconds=60)
            yield cluster
        finally:
            for node in cluster.nodes.values():
                if node.process.running:
                    node.process.kill()
            proxies.close()
