"""Real Apache Kafka as one KRaft node on loopback, from the jars of the Maven project in `java/`.

Broker and controller share the process; the controller's port is picked by the system like the broker's.  The
folder is formatted once; a restart finds its data again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.compat.brokers import CLUSTER_ID, KAFKA_SETTINGS, BrokerProcess, java_run
from tests.compat.tooling import java_command
from tests.ports import free_port


class KafkaProcess(BrokerProcess):
    """Apache Kafka, the reference."""

    name = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self.controller_port = free_port()

    def command(self) -> list[str]:
        properties = self.folder / "server.properties"
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            **KAFKA_SETTINGS,
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            java_run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        return java_command("kafka.Kafka", str(properties), heap="512m", level="INFO")
