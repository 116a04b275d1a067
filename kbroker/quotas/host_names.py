"""Addresses of the hosts that quotas of connections name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from kbroker.metadata.store import StoreCalls


def resolve(name: str) -> frozenset[str]:
    """The addresses of a host name or address; none where it has none.  Blocks where a name server is asked."""
    try:
        return frozenset({str(ipaddress.ip_address(name))})
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


class HostNames:
    """Remembers addresses, so that none is asked for on the loop.  `call` runs what blocks."""

    __slots__ = ("_call", "_known")

    def __init__(self, call: StoreCalls | None = None) -> None:
        self._call = call or StoreCalls()
        self._known: dict[str, frozenset[str]] = {}

    async def look_up(self, names: Iterable[str]) -> None:
        """Ask for the addresses of these names, whether they were known or not."""
        for name in names:
            self._known[name] = await self._call(resolve, name)

    def addresses_of(self, name: str) -> frozenset[str]:
        """The addresses of a host.  Blocks for a name that `look_up` has not resolved, as at the start of the
        broker."""
        if name not in self._known:
            self._known[name] = resolve(name)
        return self._known[name]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other names."""
        kept = frozenset(names)
        self._known = {name: addresses for name, addresses in self._known.items() if name in kept}
