"""Controllers of real Apache Kafka on loopback, one process each, as voters of one quorum.

The voters are fixed, or, `is_dynamic`, what AddRaftVoter makes them (KIP-853). `is_old`: of release 3.9.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kbroker.metadata.image import Endpoint
from tests.compat.brokers import CLUSTER_ID, BrokerProcess
from tests.compat.tooling import java_command, old_java_command
from tests.ports import free_port

# A machine under load would elect anew every few seconds otherwise.
PATIENCE = {
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "4000",
}


class KafkaController(BrokerProcess):
    """One of them; `ports` are those of all, by their ids from 3001 on."""

    name = "controller"

    def __init__(
        self,
        folder: Path,
        node_id: int,
        ports: Sequence[int],
        settings: dict[str, str],
        *,
        is_old: bool = False,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(folder, settings)
        self.is_old = is_old
        self.is_dynamic = is_dynamic
        self.node_id = node_id
        self.ports = ports
        self.port = ports[node_id - 3001]

    def command(self) -> list[str]:
        properties = self.folder / "server.properties"
        settings = {
            "node.id": str(self.node_id),
            "process.roles": "controller",
            **self._voters(),
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            **PATIENCE,
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        made = old_java_command if self.is_old else java_command
        if not (self.data / "meta.properties").exists():
            words = ["format", "-t", CLUSTER_ID, "-c", str(properties), *(["--standalone"] if self.is_dynamic else [])]
            subprocess.run(made("kafka.tools.StorageTool", *words), check=True, capture_output=True)
        return made("kafka.Kafka", str(properties), heap="256m")

    def signal(self, number: signal.Signals) -> None:
        """Stop its process where it is, or let it go on."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def _voters(self) -> dict[str, str]:
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports)}
        voters = (f"{3001 + at}@127.0.0.1:{port}" for at, port in enumerate(self.ports))
        return {"controller.quorum.voters": ",".join(voters)}


class KafkaMember(BrokerProcess):
    """A broker alone, on a directory that may have a metadata log."""

    name = "member"

    def __init__(self, folder: Path, data: Path, quorum: KafkaQuorum) -> None:
        super().__init__(folder, {})
        self.quorum = quorum
        self._data = data

    @property
    def data(self) -> Path:
        return self._data

    def command(self) -> list[str]:
        properties = self.folder / "server.properties"
        settings = {
            "node.id": "9",
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": ",".join(f"{at.host}:{at.port}" for at in self.quorum.addresses),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ["format", "-t", CLUSTER_ID, "-c", str(properties), "--no-initial-controllers"]
        subprocess.run(java_command("kafka.tools.StorageTool", *words), check=True, capture_output=True)
        return java_command("kafka.Kafka", str(properties), heap="256m", level="INFO")


class KafkaQuorum:
    """So many controllers."""

    def __init__(
        self, folder: Path, count: int, *, is_old: bool = False, is_dynamic: bool = False, **settings: str
    ) -> None:
        ports = [free_port() for _ in range(count)]
        named = {key.replace("_", "."): text for key, text in settings.items()}
        self.nodes = [
            KafkaController(folder / f"c{at}", 3001 + at, ports, named, is_old=is_old, is_dynamic=is_dynamic)
            for at in range(count)
        ]

    @property
    def addresses(self) -> list[Endpoint]:
        """Of all of them."""
        return [Endpoint("127.0.0.1", each.port) for each in self.nodes]

    def start(self) -> None:
        """Start all, and wait until they answer."""
        for each in self.nodes:
            each.start()

    def stop(self) -> None:
        """End all that run."""
        for each in self.nodes:
            each.kill()
