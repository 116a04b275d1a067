"""Real ZooKeeper from the jars that come with Kafka 3.9, on loopback: one server or an ensemble."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compat.tooling import ROOT, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500


class ZooKeeperServer:
    """One process of an ensemble; `peers` are the quorum and election ports of all, by id."""

    def __init__(self, folder: Path, server_id: int = 1, peers: dict[int, tuple[int, int]] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self._id = server_id
        self._peers = peers or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start without waiting, as members of an ensemble wait for each other."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = {
            "tickTime": str(TICK_MS),
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "initLimit": "10",
            "syncLimit": "10",
            "4lw.commands.whitelist": "*",
        }
        for number, (quorum, election) in self._peers.items():
            lines[f"server.{number}"] = f"127.0.0.1:{quorum}:{election}"
        (data / "myid").write_text(str(self._id))
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with (self.folder / "zookeeper.out").open("ab") as output:
            self._process = subprocess.Popen(
                old_java_command(MAIN, str(config), heap="128m"),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait(self) -> None:
        """Until it serves clients."""
        assert self._process is not None
        process = self._process
        wait_for(lambda: process.poll() is not None or self._serves(), "ZooKeeper to serve", seconds=60)
        if process.poll() is not None:
            text = (self.folder / "zookeeper.out").read_text(errors="replace")[-3000:]
            raise AssertionError(f"ZooKeeper ended with {process.returncode}:\n{text}")

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"srvr")
                return b"Mode:" in probe.recv(4096)
        except OSError:
            return False

    def send(self, number: signal.Signals) -> None:
        """A signal, such as SIGSTOP."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[ZooKeeperServer]:
    """One server."""
    server = ZooKeeperServer(folder)
    server.launch()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@contextmanager
def zookeeper_ensemble(folder: Path, count: int = 3) -> Iterator[list[ZooKeeperServer]]:
    """Several servers that elect a leader."""
    peers = {number: (free_port(), free_port()) for number in range(1, count + 1)}
    servers = [ZooKeeperServer(folder / str(number), number, peers) for number in peers]
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.stop()
