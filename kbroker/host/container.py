"""Whether this process is in a container, and where its network leads: the engine's own address."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

_MARKS = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into each container."""
_ROUTES, _ROUTES_6 = "proc/net/route", "proc/net/ipv6_route"
_ANYWHERE = "00000000"
_ANYWHERE_6 = "0" * 32


def gateways(root: Path = Path("/")) -> frozenset[str]:
    """The addresses of default routes, in a container: those that a connection has which comes through a port that the
    engine publishes on this machine's loopback.  None outside of containers, where they are a network's routers."""
    if not any((root / mark.lstrip("/")).exists() for mark in _MARKS):
        return frozenset()
    found = {_address(fields[2]) for fields in _rows(root / _ROUTES) if len(fields) > 2 and fields[1] == _ANYWHERE}
    found |= {
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[4]))
        for fields in _rows(root / _ROUTES_6)
        if len(fields) > 4 and fields[0] == _ANYWHERE_6 and fields[4] != _ANYWHERE_6
    }
    return frozenset(found - {"0.0.0.0"})


def _rows(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return []


def _address(text: str) -> str:
    """An IPv4 address as the kernel shows it: hexadecimal, in the machine's order of bytes."""
    return socket.inet_ntoa(struct.pack("=I", int(text, 16)))
