"""Loopback ports for servers that tests and benchmarks start."""

from __future__ import annotations

import random
import socket

# Below those that the system gives to connections (from 32768 on): none of them can take a port before its server does.
FIRST, BEHIND_LAST = 10_000, 32_000
_given: set[int] = set()


def free_port() -> int:
    """A port that nothing listens on, another one each time."""
    while True:
        port = random.randrange(FIRST, BEHIND_LAST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
