"""Listeners: `name://host:port` lists and the map from listener names to protocols.

An empty host means every interface, IPv6 included where the machine has it.  IPv6 hosts stand in brackets.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERY_HOST = frozenset(("", "0.0.0.0", "::"))
"""Hosts that mean every interface, to which nothing can connect."""
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9a-fA-F:.%\w]+\]|[^\s:/\[\]]*):(-?[0-9]{1,6})")

_HOST = re.compile(r"[0-9A-Za-z%._:-]*")
"""Kafka's; what a script has left unexpanded, such as `${HOST_IP}`, is none."""


class Listener(NamedTuple):
    """One address of the broker.  `host` is without brackets; empty means every interface."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ListenerError(ValueError):
    """What is wrong with a list of listeners."""


def parse_protocol_map(items: str) -> dict[str, str]:
    """Listener names, upper case, with the protocol that each speaks.  Raises ListenerError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in items.split(","))):
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or protocol not in PROTOCOLS:
            raise ListenerError(f"{item!r} is not listener:protocol with one of {', '.join(PROTOCOLS)}")
        if name in protocols:
            raise ListenerError(f"listener {name} appears twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(items: list[str], protocols: dict[str, str]) -> list[Listener]:
    """The listeners of a list in its order; names are upper case.  Names may not repeat.  Raises ListenerError."""
    listeners: list[Listener] = []
    for item in items:
        match = _LISTENER.fullmatch(item)
        if match is None:
            raise ListenerError(f"{item!r} is not name://host:port")
        name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
        if _HOST.fullmatch(host) is None:
            raise ListenerError(f"Unable to parse {item} to a broker endpoint: {host!r} is no host")
        if not 0 <= port <= 65535:
            raise ListenerError(f"port {port} of {item!r} is not between 0 and 65535")
        if name not in protocols:
            raise ListenerError(f"listener {name} has no protocol in listener.security.protocol.map")
        if any(other.name == name for other in listeners):
            raise ListenerError(f"listener name {name} appears twice")
        listeners.append(Listener(name, protocols[name], host, port))
    return listeners


def called(listener: Listener) -> Listener:
    """A listener with a host that a log can name: one on every interface is localhost, as Kafka's tools call it."""
    return listener if listener.host not in ("", "0.0.0.0") else listener._replace(host="localhost")


def check_ports(listeners: list[Listener]) -> None:
    """Two listeners may share a port only on two different addresses (an IPv4 and an IPv6 one, as Kafka has it).

    Raises ListenerError."""
    for index, listener in enumerate(listeners):
        for other in listeners[:index]:
            both_named = listener.host and other.host and listener.host != other.host
            if listener.port == other.port != 0 and not both_named:
                raise ListenerError(f"{other} and {listener} use the same port")
