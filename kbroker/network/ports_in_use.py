"""Who listens on a TCP port of this machine, from `/proc` (proc(5)): for a start that fails, and for `doctor`."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kbroker.config.listener import Listener
from kbroker.network.listener import bound_socket

_LISTENING = "0A"
_TABLES = ("tcp", "tcp6")
_ADDRESS, _STATE, _INODE = 1, 3, 9
"""Columns of a table."""


def why_not_listened(listeners: Iterable[Listener]) -> str | None:
    """The first of a broker's listeners that cannot be bound, and why; None where all can.

    A start asks before there are directories and a metadata store, which one that fails would leave.
    """
    for each in listeners:
        if (why := why_not_bound(each.host, each.port)) is not None:
            return f"listener {each.name}: cannot bind {each.host or '*'}:{each.port}: {why}"
    return None


def why_not_bound(host: str, port: int) -> str | None:
    """Why no socket can be bound there, with the process that is in the way; None where one can.

    host  "" for every address.  Port 0 is always free.
    """
    if not port:
        return None
    try:
        bound_socket(host, port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"{holder(port)} listens on port {port}: stop it, or name another port"
        return error.strerror or str(error)
    return None


def holder(port: int) -> str:
    """The process that listens on a port, with its name; what to ask where this user may not see it."""
    inodes = set(_listening(port))
    for process in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(OSError):  # It has ended.
            if inodes.intersection(_links(process)):
                return f"process {process} ({Path(f'/proc/{process}/comm').read_text().strip()})"
    return f"another user's process (`sudo ss -ltnp 'sport = :{port}'` names it)"


def _links(process: int) -> Iterator[str]:
    """What a process has open; nothing of another user's."""
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # It is closed by now.
                yield str(entry.readlink())


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen there, as links in a process's `fd` name them."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[_STATE] == _LISTENING and int(columns[_ADDRESS].rpartition(":")[2], 16) == port:
                    yield f"socket:[{columns[_INODE]}]"
