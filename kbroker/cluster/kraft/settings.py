"""How a broker finds the controllers of its cluster, asks them, and keeps their log, from Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kbroker.metadata.image import Endpoint

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

MS = 1000
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
VOTERS: Final = "controller.quorum.voters"


class QuorumSettingsError(ValueError):
    """Settings that contradict each other or cannot be read; the text names them."""


@dataclass(frozen=True, slots=True)
class MetadataLogSettings:
    """How the log is kept on disk; sizes in bytes, times in ms."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 604_800_000
    snapshot_bytes: int = 20 << 20
    snapshot_ms: int = 3_600_000

    @staticmethod
    def of(config: BrokerConfig) -> MetadataLogSettings:
        """From `metadata.log.*` and `metadata.max.*`."""
        return MetadataLogSettings(
            config.get("metadata.log.segment.bytes"),
            config.get("metadata.log.segment.ms"),
            config.get("metadata.max.retention.bytes"),
            config.get("metadata.max.retention.ms"),
            config.get("metadata.log.max.record.bytes.between.snapshots"),
            config.get("metadata.log.max.snapshot.interval.ms"),
        )


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Where controllers are asked for the first time, and how.

    `voters` are known by their ids beforehand.  `listener` is the name of the controllers' listener, by which their
    endpoints are found in what the log says of them.  A leader that answers nothing for `fetch_seconds` is given up for
    another controller.  Times are in seconds, sizes in bytes.

    Of voters alone: one without a leader stands after `election_seconds` and up to as much again; `resigned_seconds` is
    the longest time that one leaves to others when a leader has resigned; `joins`: one that is no voter asks to become
    one.
    """

    bootstrap: tuple[Endpoint, ...] = ()
    voters: Mapping[int, Endpoint] = field(default_factory=dict)
    listener: str = "CONTROLLER"
    fetch_seconds: float = 2.0
    request_seconds: float = 2.0
    backoff_seconds: float = 0.02
    fetch_bytes: int = 1 << 20
    snapshot_fetch_bytes: int = 1 << 20
    election_seconds: float = 1.0
    resigned_seconds: float = 1.0
    joins: bool = False
    log: MetadataLogSettings = field(default_factory=MetadataLogSettings)

    @staticmethod
    def of(config: BrokerConfig) -> QuorumSettings:
        """QuorumSettingsError where no controller is named, or in a form that is none."""
        bootstrap = tuple(_endpoint(BOOTSTRAP, each) for each in config.get(BOOTSTRAP))
        voters = dict(_voter(each) for each in config.get(VOTERS))
        if not bootstrap and not voters:
            raise QuorumSettingsError(
                f"neither {BOOTSTRAP} nor {VOTERS} is set: a broker needs the addresses of its controllers"
            )
        names = config.get("controller.listener.names")
        if not names:
            raise QuorumSettingsError("controller.listener.names is not set: a broker needs it to find its controllers")
        return QuorumSettings(
            bootstrap,
            voters,
            names[0].upper(),
            config.get("controller.quorum.fetch.timeout.ms") / MS,
            config.get("controller.quorum.request.timeout.ms") / MS,
            config.get("controller.quorum.retry.backoff.ms") / MS,
            config.get("controller.quorum.fetch.max.bytes"),
            config.get("controller.quorum.fetch.snapshot.max.bytes"),
            config.get("controller.quorum.election.timeout.ms") / MS,
            config.get("controller.quorum.election.backoff.max.ms") / MS,
            config.get("controller.quorum.auto.join.enable"),
            MetadataLogSettings.of(config),
        )

    @property
    def addresses(self) -> tuple[Endpoint, ...]:
        """All that are known beforehand, each once."""
        return tuple(dict.fromkeys((*self.bootstrap, *self.voters.values())))


def _endpoint(key: str, text: str) -> Endpoint:
    host, colon, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise QuorumSettingsError(f"{key}: {text.strip()!r} is not host:port")
    return Endpoint(host, int(port))


def _voter(text: str) -> tuple[int, Endpoint]:
    node_id, at, address = text.strip().partition("@")
    if not at or not node_id.isascii() or not node_id.isdigit():
        raise QuorumSettingsError(f"{VOTERS}: {text.strip()!r} is not id@host:port")
    return int(node_id), _endpoint(VOTERS, address)
