"""A broker as a process of its own: kbroker, or real Apache Kafka, behind the same few verbs.

Both listen on 127.0.0.1 only, on ports that the system picked, keep everything under the folder that they are
given, keep port and folder over a restart, and are ended by their process id.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.compat.tooling import ROOT, java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port

# One node, groups that start at once and sessions short enough that a dead member is noticed within a test.
SETTINGS: Mapping[str, str] = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
KAFKA_SETTINGS: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

# ApiVersions v0, correlation id 1, no client id: the one question that every Kafka broker answers.
ANYBODY_THERE = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def answers(port: int) -> bool:
    """Whether a Kafka broker answers on this port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.sendall(ANYBODY_THERE)
            return len(link.recv(8)) == 8
    except OSError:
        return False


class BrokerProcess:
    """One broker, started and ended at will in the same folder and on the same port."""

    name = ""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = {**SETTINGS, **(settings or {})}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        """What a client is given as its bootstrap server."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The broker's log directory."""
        return self.folder / "data"

    @property
    def output(self) -> Path:
        """What the broker wrote to its terminal."""
        return self.folder / "broker.out"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""
        raise NotImplementedError

    def tail(self) -> str:
        """The end of the broker's own output, for a failure's message."""
        return self.output.read_text(errors="replace")[-3000:] if self.output.exists() else ""

    def start(self, seconds: float = 120) -> None:
        """Start and wait until the broker answers."""
        # A developer's own KBROKER_ settings must not reach the broker under test.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_")}
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        wait_for(lambda: not self.alive or answers(self.port), f"{self.name} to answer", seconds=seconds)
        if not self.alive:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    def stop(self, seconds: float = 120) -> int:
        """Ask the broker to end and wait; its exit code."""
        return self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """End the broker as a crash would."""
        self._end(signal.SIGKILL, 60)

    def restart(self) -> None:
        """An orderly stop and a new start."""
        self.stop()
        self.start()

    def _end(self, number: signal.Signals, seconds: float) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
            raise AssertionError(f"{self.name} did not end in {seconds:g} s after {number.name}") from None


class KbrokerProcess(BrokerProcess):
    """The broker of this project."""

    name = "kbroker"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self.metrics_port = free_port()

    def command(self) -> list[str]:
        settings = {
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "metrics.listener": f"http://127.0.0.1:{self.metrics_port}",
            **self.settings,
        }
        overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        return [sys.executable, "-m", "kbroker.cli", "start", *overrides]


def broker_kind(target: str) -> type[BrokerProcess]:
    """The kind of broker that a target's name stands for."""
    from tests.compat.real_kafka import KafkaProcess

    kinds: dict[str, type[BrokerProcess]] = {"kbroker": KbrokerProcess, "kafka": KafkaProcess}
    if target not in kinds:
        raise ValueError(f"KBROKER_TEST_TARGET={target!r}: must be one of {', '.join(kinds)}")
    return kinds[target]


def java_run(java_class: str, *args: str) -> None:
    """Run a Java class that must succeed."""
    done = subprocess.run(java_command(java_class, *args), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{java_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
