"""The limits on connections: `max.connections`, `max.connections.per.ip` and its overrides, open files; and the number
of threads that send to them.

Counts are shared by all listeners; one may have a `max.connections` of its own beside that.  A connection over a limit
is accepted and closed at once; Kafka instead leaves connections over `max.connections` in the listen backlog, where the
client waits without an answer.

Every connection is an open file of the process.  The owner of the other descriptors (the logs' files) is notified of
the number of connections (`on_count`) whenever a few have come or gone.  At the process's limit of open files the loop
would drop new connections silently, and logs could not be opened; so connections are refused a little below it, with a
line in the log.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

# Descriptors that connections leave for the logs' files, the metadata, metrics and what else there is.
KEPT_DESCRIPTORS = 128
OPEN_FILES = "the limit of open files (ulimit -n)"
# More than anybody can use; some systems have no limit at all.
MOST_DESCRIPTORS = 1 << 20
# `on_count` is called each time that so many connections have come or gone.
TOLD_EVERY = 64


def raise_descriptor_limit() -> int:
    """Let this process open as many files as its user may, as Java does; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return min(soft, MOST_DESCRIPTORS) if soft != resource.RLIM_INFINITY else MOST_DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def overrides_by_address(text: str) -> dict[str, int]:
    """The rows of `max.connections.per.ip.overrides`, `address:count` with commas; checked when it was read."""
    return {
        address: int(count)
        for address, _, count in (row.strip().rpartition(":") for row in text.split(",") if row.strip())
    }


def beside_the_loop(network_threads: int) -> int:
    """The number of threads beside the loop, which is the first of a listener's `num.network.threads`: at most one for
    each other processor."""
    return min(network_threads, len(os.sched_getaffinity(0))) - 1


class ConnectionLimits:
    """Counts connections in all and by address."""

    __slots__ = ("_by_address", "_expected", "_max", "_max_per_address", "_overrides", "_room", "count", "on_count")

    def __init__(
        self,
        max_connections: int,
        max_per_address: int,
        overrides: Mapping[str, int],
        descriptors: int = MOST_DESCRIPTORS,
        on_count: Callable[[int], None] | None = None,
    ) -> None:
        self._max = max_connections
        self._room = max(1, descriptors - KEPT_DESCRIPTORS)
        self._max_per_address = max_per_address
        self._overrides = overrides
        self._by_address: dict[str, int] = {}
        self.count = 0
        self._expected = 0
        self.on_count = on_count

    def change(self, max_connections: int, max_per_address: int, overrides: Mapping[str, int]) -> None:
        """Other limits for connections from now on; those that are open stay."""
        self._max = max_connections
        self._max_per_address = max_per_address
        self._overrides = overrides

    @property
    def left(self) -> int:
        """How many more connections the process has descriptors for."""
        return self._room - self.count - self._expected

    def expect(self, count: int) -> None:
        """Adds `count` accepted connections that have yet to come to `admit`; a negative count removes those that now
        do."""
        if count:
            self._expected += count
            self._tell()

    def _tell(self) -> None:
        if self.on_count is not None:
            self.on_count(self.count + self._expected)

    def admit(self, address: str) -> str | None:
        """Count a new connection; the setting that forbids it, or None when it may stay.

        A refused connection is counted as well until `leave`.
        """
        self.count += 1
        if self.count % TOLD_EVERY == 0:
            self._tell()
        used = self._by_address.get(address, 0) + 1
        self._by_address[address] = used
        if self.count > self._max:
            return "max.connections"
        if self.count > self._room:
            return OPEN_FILES
        if used > self._overrides.get(address, self._max_per_address):
            return "max.connections.per.ip"
        return None

    def leave(self, address: str) -> None:
        """A connection of that address ended."""
        self.count -= 1
        if self.count % TOLD_EVERY == 0:
            self._tell()
        left = self._by_address.get(address, 0) - 1
        if left > 0:
            self._by_address[address] = left
        else:
            self._by_address.pop(address, None)


def connection_limits(config: BrokerConfig) -> tuple[int, int, dict[str, int]]:
    """`max.connections`, `max.connections.per.ip` and its overrides by address."""
    get = config.get
    overrides = overrides_by_address(get("max.connections.per.ip.overrides"))
    return get("max.connections"), get("max.connections.per.ip"), overrides
