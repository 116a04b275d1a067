"""How a broker reaches ZooKeeper, from Kafka's settings."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.cluster")

PEM = "PEM"
DEFAULT_PORT = 2181
_SERVER = re.compile(r"(?:[^\s:\[\]]+|\[[0-9a-fA-F:.%\w]+\])(?::([0-9]{1,5}))?")


class ZooKeeperSettingsError(ValueError):
    """Settings that contradict each other or that kbroker can't follow; the text names them."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; None where there is none."""

    keystore: str | None = None
    password: str | None = None
    truststore: str | None = None
    checks_host: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """`connect` is host:port,…/chroot; `principal` the SASL user, empty without SASL."""

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    set_acl: bool = False
    principal: str = ""
    password: str = ""
    tls: Tls | None = None

    @staticmethod
    def of(config: BrokerConfig) -> ZooKeeperSettings | None:
        """None without `zookeeper.connect`.  ZooKeeperSettingsError where settings can't be followed."""
        connect = (config.get("zookeeper.connect") or "").strip()
        if not connect:
            return None
        check_connect(connect)
        session = config.get("zookeeper.session.timeout.ms")
        principal = config.get("kbroker.zookeeper.sasl.username") or ""
        if config.get("zookeeper.set.acl") and not principal:
            raise ZooKeeperSettingsError(
                "zookeeper.set.acl=true needs SASL to ZooKeeper: set kbroker.zookeeper.sasl.username and .password"
            )
        return ZooKeeperSettings(
            connect.rstrip("/"),
            session,
            config.get("zookeeper.connection.timeout.ms") or session,
            config.get("zookeeper.set.acl"),
            principal,
            config.get("kbroker.zookeeper.sasl.password") or "",
            _tls(config),
        )

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Host and port of each."""
        rows = (each.strip().rpartition(":") for each in self.connect.partition("/")[0].split(","))
        return [(host.strip("[]"), int(port)) if host else (port, DEFAULT_PORT) for host, _, port in rows]

    @property
    def chroot(self) -> str:
        """The path behind the servers; empty without one."""
        _, slash, path = self.connect.partition("/")
        return slash + path

    def kazoo_arguments(self) -> dict[str, object]:
        """What kazoo's client is given for TLS and SASL."""
        found: dict[str, object] = {}
        if self.tls is not None:
            found |= {
                "use_ssl": True,
                "certfile": self.tls.keystore,
                "keyfile": self.tls.keystore,
                "keyfile_password": self.tls.password,
                "ca": self.tls.truststore,
                "verify_certs": self.tls.truststore is not None,
                "check_hostname": self.tls.checks_host and self.tls.truststore is not None,
            }
        if self.principal:
            found["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": self.principal,
                "password": self.password,
            }
        return found


def check_connect(connect: str) -> None:
    """ZooKeeperSettingsError where `connect` names no servers."""
    servers, slash, chroot = connect.partition("/")
    for server in servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1] or DEFAULT_PORT) < 1 << 16:
            raise ZooKeeperSettingsError(
                f"zookeeper.connect: {server.strip()!r} of {connect!r} is not host:port; servers are separated by "
                "commas, and a path follows the last one"
            )
    if "," in chroot:
        # It may be an old one: Kafka takes it as it is, too.
        logger.warning(
            "zookeeper.connect: all of %s is the path, and %s the only servers; a path stands behind the last server",
            slash + chroot,
            servers,
        )


def _tls(config: BrokerConfig) -> Tls | None:
    if not config.get("zookeeper.ssl.client.enable"):
        return None
    for location, kind in (
        (config.get("zookeeper.ssl.keystore.location"), config.get("zookeeper.ssl.keystore.type")),
        (config.get("zookeeper.ssl.truststore.location"), config.get("zookeeper.ssl.truststore.type")),
    ):
        if location and (kind or (PEM if location.endswith(".pem") else "JKS")).upper() != PEM:
            raise ZooKeeperSettingsError(
                f"{location}: kbroker reads PEM files; convert it, and set zookeeper.ssl.keystore.type, or "
                "zookeeper.ssl.truststore.type, to PEM"
            )
    if not config.get("zookeeper.ssl.truststore.location"):
        raise ZooKeeperSettingsError("zookeeper.ssl.client.enable=true needs zookeeper.ssl.truststore.location")
    return Tls(
        config.get("zookeeper.ssl.keystore.location"),
        config.get("zookeeper.ssl.keystore.password"),
        config.get("zookeeper.ssl.truststore.location"),
        config.get("zookeeper.ssl.endpoint.identification.algorithm") == "HTTPS",
    )
