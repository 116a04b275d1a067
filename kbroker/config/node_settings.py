"""The settings of a node of a KRaft cluster, whichever roles it has: for commands that start nothing.

`BrokerConfig` refuses what this process does not start as.  Formatting and adding a controller only need to know who
the node is and where it listens; what they refuse is in Kafka's words (`KafkaConfig`, 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kbroker.config.broker import BrokerConfig, ConfigError
from kbroker.config.listener import Listener, ListenerError, called, parse_listeners, parse_protocol_map

ROLES: Final = "process.roles"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
LISTENER_NAMES: Final = "controller.listener.names"
CONTROLLER = "controller"


class NodeSettings(BrokerConfig):
    """See the module's text.  Read-only once made."""

    __slots__ = ()

    @property
    def roles(self) -> frozenset[str]:
        """The roles that are set; none where `process.roles` is not."""
        return frozenset(self.get(ROLES)) if ROLES in self.explicit else frozenset()

    @property
    def is_controller(self) -> bool:
        """Whether the node is one, as its settings say."""
        return CONTROLLER in self.roles

    @property
    def metadata_dir(self) -> str:
        """The log directory that has the metadata log."""
        named = self.get("metadata.log.dir")
        return str(Path(named).absolute()) if named else self.log_dirs[0]

    @property
    def directories(self) -> list[str]:
        """All log directories, that of the metadata log among them."""
        return list(dict.fromkeys((*self.log_dirs, self.metadata_dir)))

    @property
    def voters(self) -> Mapping[int, str]:
        """The addresses of `controller.quorum.voters`, by node id."""
        found = {}
        for each in self.get(VOTERS):
            node_id, at, address = each.strip().partition("@")
            if not at or not node_id.isascii() or not node_id.isdigit():
                raise self._fail(VOTERS, "Each entry should be in the form `{id}@{host}:{port}`.")
            found[int(node_id)] = address
        return MappingProxyType(found)

    @property
    def quorum_listeners(self) -> list[Listener]:
        """Where others find the node as a controller, in the order of `controller.listener.names`."""
        named = {each.name: each for each in (*self.listeners, *self.advertised_listeners)}
        found = [named[name] for name in self._names if name in named]
        return [called(each) for each in found]

    def check_quorum(self) -> None:
        """ConfigError where Kafka refuses to format the node."""
        if not self._names:
            raise ConfigError(f'Missing required configuration "{LISTENER_NAMES}" which has no default value.')
        if not self.voters and not self.get(BOOTSTRAP):
            raise ConfigError(
                f"If using {ROLES}, either {BOOTSTRAP} must contain the set of bootstrap controllers or {VOTERS} must "
                "contain a parseable set of controllers."
            )
        is_voter = self.node_id in self.voters
        ids = f"{VOTERS}={sorted(self.voters)}"
        if self.is_controller and self.voters and not is_voter:
            raise ConfigError(
                f"If {ROLES} contains the 'controller' role, the node id {self.node_id} must be included in the set of "
                f"voters {ids}"
            )
        if not self.is_controller and is_voter:
            raise ConfigError(
                f"If {ROLES} contains just the 'broker' role, the node id {self.node_id} must not be included in the "
                f"set of voters {ids}"
            )
        if self.is_controller and not self.quorum_listeners:
            raise ConfigError(
                f"{LISTENER_NAMES} must contain at least one value appearing in the 'listeners' configuration when "
                "running the KRaft controller role"
            )

    @property
    def _names(self) -> list[str]:
        return [name.upper() for name in self.get(LISTENER_NAMES)]

    def _check_roles(self) -> None:
        """Each role will do."""

    def _check_together(self) -> None:
        """What a start would refuse does not matter here."""

    def _read_listeners(self) -> tuple[list[Listener], list[Listener]]:
        """All of them, those of controllers among them."""
        key = "listener.security.protocol.map"
        try:
            protocols = parse_protocol_map(self.get("listener.security.protocol.map"))
            for name in self._names:
                protocols.setdefault(name, "PLAINTEXT")
            key = "listeners"
            listeners = parse_listeners(self.get("listeners"), protocols)
            key = "advertised.listeners"
            return listeners, parse_listeners(self.get("advertised.listeners") or [], protocols)
        except ListenerError as error:
            raise self._fail(key, str(error)) from None
