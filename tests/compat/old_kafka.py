"""Apache Kafka's last release with ZooKeeper, in both of its modes, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.compat.brokers import CLUSTER_ID, KAFKA_SETTINGS, BrokerProcess
from tests.compat.tooling import ROOT, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port

OLD_SETTINGS = {key: value for key, value in KAFKA_SETTINGS.items() if not key.startswith("share.")}


class OldKafka(BrokerProcess):
    """One KRaft node, or with `zookeeper` (host:port) one broker of a ZooKeeper cluster."""

    name = "kafka-3.9"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, zookeeper: str = "") -> None:
        super().__init__(folder, settings)
        self.zookeeper = zookeeper
        self.controller_port = free_port()

    def start(self, seconds: float = 120) -> None:
        """Started with ZooKeeper it answers before it has a controller, which topics need to be made."""
        super().start(seconds)

        def controlled() -> bool:
            metadata = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=60)
            return bool(metadata.brokers) and metadata.controller_id >= 0

        wait_for(controlled, f"{self.name} to have a controller", seconds=seconds)

    def command(self) -> list[str]:
        own = f"PLAINTEXT://127.0.0.1:{self.port}"
        if self.zookeeper:
            mode = {"broker.id": "1", "zookeeper.connect": self.zookeeper, "listeners": own}
        else:
            mode = {
                "node.id": "1",
                "process.roles": "broker,controller",
                "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
                "listeners": f"{own},CONTROLLER://127.0.0.1:{self.controller_port}",
                "controller.listener.names": "CONTROLLER",
            }
        properties = self.folder / "server.properties"
        settings = {**mode, "log.dirs": str(self.data), **OLD_SETTINGS, **self.settings}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not self.zookeeper and not (self.data / "meta.properties").exists():
            command = old_java_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
            subprocess.run(command, check=True, capture_output=True)
        return old_java_command("kafka.Kafka", str(properties))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """A ZooKeeper server; its host:port."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = folder / "zoo.cfg"
    lines = {
        "tickTime": "2000",
        "dataDir": str(folder / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    command = old_java_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config), heap="128m")
    with (folder / "zookeeper.out").open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), "ZooKeeper to listen")
        if process.poll() is not None:
            text = (folder / "zookeeper.out").read_text(errors="replace")[-3000:]
            raise AssertionError(f"ZooKeeper ended with {process.returncode}:\n{text}")
        yield f"127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
