"""Loopback ports for servers that tests start, none given twice on this machine.

Processes of one user that ask at the same time (workers of one test run, two runs side by side) share a lock file: byte
N of it stays locked for as long as the process that was given port N lives.  From the choice of a port until its server
listens, and while a server is down for a restart, only this lock shows that the port is taken.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

# Below those that the system gives to connections (from 32768 on): none of them can take a port before its server does.
FIRST, BEHIND_LAST = 10_000, 32_000
_given: set[int] = set()


@functools.cache
def _locks(process: int) -> int:
    """The descriptor of the shared file; a forked process gets one of its own, as it holds no locks of its parent."""
    path = Path(tempfile.gettempdir()) / f"kbroker-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _reserve(port: int) -> bool:
    """Take a port from all other processes until this one ends; False if one of them has it."""
    try:
        fcntl.lockf(_locks(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def free_port(count: int = 1) -> int:
    """A port that nothing listens on and that no other call was given, in this process or another; the first of
    `count` such ports that follow each other."""
    while True:
        first = random.randrange(FIRST, BEHIND_LAST - count + 1)
        ports = range(first, first + count)
        if all(port not in _given and _reserve(port) and _is_free(port) for port in ports):
            _given.update(ports)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
