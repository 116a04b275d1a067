"""How many connections there may be: `max.connections`, `max.connections.per.ip` and its overrides.

Counts are shared by all listeners.  A connection over a limit is accepted and closed at once; Kafka leaves those over
`max.connections` in the listen backlog instead, where the client waits without a word.
"""

from __future__ import annotations

from collections.abc import Mapping


class ConnectionLimits:
    """Counts connections in all and by address."""

    __slots__ = ("_by_address", "_max", "_max_per_address", "_overrides", "count")

    def __init__(self, max_connections: int, max_per_address: int, overrides: Mapping[str, int]) -> None:
        self._max = max_connections
        self._max_per_address = max_per_address
        self._overrides = overrides
        self._by_address: dict[str, int] = {}
        self.count = 0

    def admit(self, address: str) -> str | None:
        """Count a new connection; the setting that forbids it, or None when it may stay.

        A refused connection is counted as well until `leave`.
        """
        self.count += 1
        used = self._by_address.get(address, 0) + 1
        self._by_address[address] = used
        if self.count > self._max:
            return "max.connections"
        if used > self._overrides.get(address, self._max_per_address):
            return "max.connections.per.ip"
        return None

    def leave(self, address: str) -> None:
        """A connection of that address ended."""
        self.count -= 1
        left = self._by_address.get(address, 0) - 1
        if left > 0:
            self._by_address[address] = left
        else:
            self._by_address.pop(address, None)
