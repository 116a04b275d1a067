"""Brokers of kbroker and of Apache Kafka as processes of one KRaft cluster under Kafka's controllers, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kbroker.storage.directories.log_dirs import LogDir
from kbroker.storage.files.filesystem import FileSystem
from kbroker.testing.security import Security
from tests.broker_process import BrokerProcess
from tests.cluster.cluster_clients import PATIENCE, ClusterClients
from tests.compat.brokers import CLUSTER_ID
from tests.compat.tooling import ROOT, java_command, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port

FIRST_CONTROLLER = 3001
QUORUM_SETTINGS = {
    # Elections on a busy machine would follow each other.
    "controller.quorum.fetch.timeout.ms": "10000",
    "controller.quorum.election.timeout.ms": "5000",
    "controller.quorum.request.timeout.ms": "10000",
    "broker.session.timeout.ms": "6000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
}
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
}
KBROKER_CONTROLLERS = int(os.environ.get("TEST_KBROKER_CONTROLLERS", "0"))
"""So many controllers of each cluster are kbrokers, where a test does not say it."""
OF_CONTROLLERS_TOO = ("delegation.", "authorizer.", "super.users", "broker.session.")
"""How settings begin that controllers are given, too."""


def secured(security: Security | None, port: int, *, is_controller: bool = False) -> dict[str, str]:
    """What `security` asks of a node: of its own listener, and of connections to the controllers, which are alike."""
    if security is None:
        return {}
    assert security.directory is not None
    protocol = security.protocol
    found = security.settings(security.directory, port)
    found["listener.security.protocol.map"] = f"CONTROLLER:{protocol},{protocol}:{protocol}"
    if security.authenticates:
        found["sasl.mechanism.controller.protocol"] = "PLAIN"
        jaas = found[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"]
        found["listener.name.controller.plain.sasl.jaas.config"] = jaas
    if is_controller:
        found["listeners"] = f"CONTROLLER://127.0.0.1:{port}"
        del found["security.inter.broker.protocol"]
    return found


def format_directory(path: str, node_id: int) -> None:
    """Bind a log directory to the cluster, as `kbroker format` does; one that is bound stays as it is."""
    directory = LogDir(FileSystem(), path)
    directory.open()
    directory.bind(CLUSTER_ID, node_id)
    directory.release()


class NodeProcess:
    """A node's process, which comes and goes; its directory stays."""

    output_name: str
    """Of the file with what it says."""

    def __init__(self, node_id: int, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.port = port
        self._folder = folder
        self._settings = {"node.id": str(node_id), "log.dirs": str(folder / "data"), **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def _spawn(self, command: Sequence[str]) -> None:
        with (self._folder / self.output_name).open("ab") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def _write_properties(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        return properties

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            self._process.wait(60)
            self._process = None

    def output(self) -> str:
        path = self._folder / self.output_name
        return path.read_text(errors="replace") if path.exists() else ""


class JavaNode(NodeProcess):
    """A node of Apache Kafka 4.3.1; its directory and port stay over restarts."""

    output_name = "kafka.out"

    def __init__(
        self, node_id: int, folder: Path, port: int, settings: Mapping[str, str], heap: str, *, is_old: bool = False
    ) -> None:
        """`is_old`: of Kafka 3.9.1 instead."""
        protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
        super().__init__(node_id, folder, port, {**protocols, **settings})
        self._heap = heap
        self._is_old = is_old

    def start(self) -> None:
        properties = self._write_properties()
        if not (self._folder / "data" / "meta.properties").exists():
            done = subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        self._spawn(self._java("kafka.Kafka", str(properties)))

    def _java(self, *words: str) -> list[str]:
        if self._is_old:
            return old_java_command(*words, heap=self._heap)
        return java_command(*words, heap=self._heap, level="INFO")


class KbrokerController(NodeProcess):
    """A controller of kbroker alone; its directory and port stay over restarts."""

    output_name = "kbroker.out"

    def __init__(self, node_id: int, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        own = {"metrics.listener": "none", "listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}
        super().__init__(node_id, folder, port, {**own, **settings})

    def start(self) -> None:
        properties = self._write_properties()
        format_directory(self._settings["log.dirs"], self.node_id)
        self._spawn([sys.executable, "-P", "-m", "kbroker.cli", "start", str(properties)])


class Kafka(JavaNode):
    """A broker alone."""

    kind = "kafka"

    def __init__(
        self, node_id: int, folder: Path, voters: str, settings: Mapping[str, str], security: Security | None = None
    ) -> None:
        port = free_port()
        own = {
            **SETTINGS,
            "process.roles": "broker",
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **secured(security, port),
            **settings,
        }
        super().__init__(node_id, folder, port, own, heap="320m")


class Kbroker:
    """One broker of kbroker; its directory and port stay over restarts."""

    kind = "kbroker"

    def __init__(
        self,
        node_id: int,
        folder: Path,
        voters: str,
        settings: Mapping[str, str],
        security: Security | None = None,
        port: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.port = port or free_port()
        self._folder = folder
        overrides = {
            **SETTINGS,
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": ",".join(each.partition("@")[2] for each in voters.split(",")),
            "metrics.listener": "none",
            **secured(security, self.port),
            **settings,
        }
        self._process = BrokerProcess(folder, overrides, port=self.port, security=security)
        self._dirs = overrides.get("log.dirs", str(folder / "data")).split(",")

    def start(self) -> None:
        for path in self._dirs:
            format_directory(path, self.node_id)
        self._process.start()

    def kill(self) -> None:
        if self._process.process is not None:
            self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def environ(self) -> dict[str, str]:
        """What the process's environment has beyond the test's."""
        return self._process.environ

    def refused(self) -> str:
        """What it says as it ends: a start on the directories as they are, which must fail."""
        before = len(self.output())
        self._process.spawn()
        status = self._process.wait()
        said = self.output()[before:]
        assert status == 1, (status, said)
        return said

    @property
    def is_running(self) -> bool:
        return self._process.running

    def output(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))


Node = Kbroker | Kafka


class Cluster(ClusterClients):
    """Controllers from FIRST_CONTROLLER on, of a quorum that does not change, and brokers 1 to n."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[type[Node]],
        controllers: int,
        settings: Mapping[str, str],
        security: Security | None = None,
        *,
        are_old: bool = False,
        kbrokers: int = 0,
    ) -> None:
        """`{id}` in a setting's value stands for the broker's id; `are_old`: controllers of Kafka 3.9.1; `kbrokers`: so
        many of the controllers are kbrokers."""
        self.security = security
        ports = {FIRST_CONTROLLER + number: free_port() for number in range(controllers)}
        self.voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self._settings = {
            **QUORUM_SETTINGS,
            "process.roles": "controller",
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            # Controllers make the tokens, and hold clients to ACLs.
            **{name: text for name, text in settings.items() if name.startswith(OF_CONTROLLERS_TOO)},
        }
        self._are_old = are_old
        self.folder = folder
        self.controllers: dict[int, JavaNode | KbrokerController] = {
            node_id: self.controller(node_id, port, is_kbroker=number < kbrokers)
            for number, (node_id, port) in enumerate(ports.items())
        }
        self.nodes: dict[int, Node] = {}
        for number, kind in enumerate(kinds, 1):
            own = {name: text.replace("{id}", str(number)) for name, text in settings.items()}
            self.nodes[number] = self.make(kind, number, own)

    def controller(self, node_id: int, port: int, *, is_kbroker: bool) -> JavaNode | KbrokerController:
        """A voter on a directory of its own kind."""
        own = {
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            **secured(self.security, port, is_controller=True),
            **self._settings,
        }
        if is_kbroker:
            return KbrokerController(node_id, self.folder / f"kbroker-{node_id}", port, own)
        folder = self.folder / f"controller-{node_id}"
        return JavaNode(node_id, folder, port, {**SETTINGS, **own}, heap="256m", is_old=self._are_old)

    def make(self, kind: type[Node], number: int, settings: Mapping[str, str] | None = None) -> Node:
        """A broker on the directory of that number."""
        return kind(number, self.folder / f"broker-{number}", self.voters, settings or {}, self.security)

    def brokers(self) -> Iterable[Node]:
        return self.nodes.values()

    def everybody(self) -> list[Node | JavaNode | KbrokerController]:
        return [*self.nodes.values(), *self.controllers.values()]

    def isr(self, topic: str, through: int | None = None) -> list[set[int]]:
        """Of each partition, as a broker tells it."""
        admin = self.admin() if through is None else self.admin_of(through)
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [set(partitions[index].isrs) for index in sorted(partitions)]

    def leaders(self, topic: str) -> list[int]:
        """Of each partition."""
        partitions = self.admin().list_topics(topic, timeout=10).topics[topic].partitions
        return [partitions[index].leader for index in sorted(partitions)]

    def admin_of(self, number: int) -> AdminClient:
        """A client that asks one broker."""
        bootstrap = f"127.0.0.1:{self.nodes[number].port}"
        return AdminClient({**self.client(), "bootstrap.servers": bootstrap, "socket.timeout.ms": 20000})

    def wait_isr(self, topic: str, wanted: set[int], through: int | None = None) -> None:
        """Until the ISR of each partition is this one."""

        def settled() -> bool:
            try:
                found = self.isr(topic, through)
            except KafkaException:
                return False
            return bool(found) and all(each == wanted for each in found)

        wait_for(settled, f"the ISR of {topic} to be {wanted}", seconds=PATIENCE)


@contextmanager
def running(
    folder: Path,
    kinds: Sequence[type[Node]],
    *,
    controllers: int = 1,
    settings: Mapping[str, str] | None = None,
    security: Security | None = None,
    old_controllers: bool = False,
    kbrokers: int = KBROKER_CONTROLLERS,
) -> Iterator[Cluster]:
    """A cluster whose brokers are there; `kbrokers`: so many of its controllers are kbrokers."""
    kbrokers = 0 if old_controllers else kbrokers
    cluster = Cluster(folder, kinds, controllers, settings or {}, security, are_old=old_controllers, kbrokers=kbrokers)
    try:
        for each in cluster.controllers.values():
            each.start()
        for node in cluster.nodes.values():
            node.start()
        cluster.wait_known(set(cluster.nodes))
        yield cluster
    except BaseException:
        for each in cluster.everybody():
            print(f"--- {each.node_id}\n{each.output()[-4000:]}")
        raise
    finally:
        for each in cluster.everybody():
            each.kill()
