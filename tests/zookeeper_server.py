"""Real ZooKeeper on loopback, one server or an ensemble: 3.8 from the jars of Kafka 3.9, or 3.9 behind TLS and SASL."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbroker.authorities import trusting
from tests.compat.tooling import ROOT, old_client_jars, old_java_command
from tests.compat.waiting import wait_for
from tests.ports import free_port

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
SECURE_RELEASE = "3.9.3"


@dataclass(frozen=True)
class Security:
    """PEM files of both sides, which an authority has signed; who may come by SASL DIGEST-MD5."""

    authority: Path
    server: Path
    client: Path
    user: str = "kafka"
    password: str = "secret of brokers"

    @staticmethod
    def made(folder: Path) -> Security:
        """Fresh ones; each `.pem` has a key and a certificate."""
        folder.mkdir(parents=True)

        def openssl(*args: str) -> None:
            subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=folder)

        key = ("-newkey", "rsa:2048", "-nodes")
        openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        for name in ("server", "client"):
            openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
            openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
            pair = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
            (folder / f"{name}.pem").write_text(pair)
        return Security(folder / "ca.pem", folder / "server.pem", folder / "client.pem")

    def context(self) -> ssl.SSLContext:
        """What a client of it connects with."""
        context = trusting(str(self.authority))
        context.load_cert_chain(self.client)
        return context

    def of_server(self) -> dict[str, str]:
        """Settings of a server: clients show a certificate, and those with SASL must pass it."""
        return {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.server),
            "ssl.trustStore.location": str(self.authority),
            "ssl.clientAuth": "need",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }

    def of_broker(self) -> dict[str, str]:
        """Settings of a broker."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(self.client),
            "zookeeper.ssl.truststore.location": str(self.authority),
            "kbroker.zookeeper.sasl.username": self.user,
            "kbroker.zookeeper.sasl.password": self.password,
            "zookeeper.set.acl": "true",
        }

    def command(self, folder: Path, config: Path) -> list[str]:
        """The command line of a server."""
        login = folder / "jaas.conf"
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        login.write_text(f'Server {{ {module} required user_{self.user}="{self.password}"; }};\n')
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        jaas = f"-Djava.security.auth.login.config={login}"
        return ["java", *options, jaas, "-cp", f"{old_client_jars(SECURE_RELEASE, 'zookeeper')}/*", MAIN, str(config)]


class ZooKeeperServer:
    """One process of an ensemble; `peers` are the quorum and election ports of all, by id."""

    def __init__(
        self,
        folder: Path,
        server_id: int = 1,
        peers: dict[int, tuple[int, int]] | None = None,
        security: Security | None = None,
    ) -> None:
        self.security = security
        self.folder = folder
        self.port = free_port()
        self.mode = ""
        """`leader`, `follower` or `standalone`, when `wait` saw it."""
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
            **self._port_settings(),
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "initLimit": "10",
            "syncLimit": "10",
            "maxSessionTimeout": "600000",
            "4lw.commands.whitelist": "*",
        }
        for number, (quorum, election) in self._peers.items():
            lines[f"server.{number}"] = f"127.0.0.1:{quorum}:{election}"
        (data / "myid").write_text(str(self._id))
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        security = self.security
        command = (
            security.command(self.folder, config) if security else old_java_command(MAIN, str(config), heap="128m")
        )
        with (self.folder / "zookeeper.out").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _port_settings(self) -> dict[str, str]:
        secure = self.security is not None
        port, address = (
            ("secureClientPort", "secureClientPortAddress") if secure else ("clientPort", "clientPortAddress")
        )
        own = {port: str(self.port), address: "127.0.0.1"}
        return own | (self.security.of_server() if self.security is not None else {})

    def wait(self) -> None:
        """Until it serves clients."""
        assert self._process is not None
        process = self._process
        wait_for(lambda: process.poll() is not None or self._serves(), "ZooKeeper to serve", seconds=240)
        if process.poll() is not None:
            text = (self.folder / "zookeeper.out").read_text(errors="replace")[-3000:]
            raise AssertionError(f"ZooKeeper ended with {process.returncode}:\n{text}")

    def _serves(self) -> bool:
        try:
            with ExitStack() as ended:
                probe = ended.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=5))
                if self.security is not None:
                    wrapped = self.security.context().wrap_socket(probe, server_hostname="127.0.0.1")
                    probe = ended.enter_context(wrapped)
                probe.sendall(b"srvr")
                self.mode = probe.recv(4096).partition(b"Mode: ")[2].partition(b"\n")[0].decode()
                return bool(self.mode)
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
            self._process.wait(60)
            self._process = None


@contextmanager
def zookeeper_server(folder: Path, security: Security | None = None) -> Iterator[ZooKeeperServer]:
    """One server."""
    server = ZooKeeperServer(folder, security=security)
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
