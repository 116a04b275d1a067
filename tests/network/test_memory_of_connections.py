"""What thousands of connections have used is free when they have gone.

Tests: `kbroker.host.freed_memory` in a broker.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbroker.host.freed_memory import heap
from tests.compat.waiting import wait_for
from tests.memory import resident_bytes
from tests.network.many_files import many_files
from tests.security.tls.secured import Secured

CONNECTIONS = 4_000
MOST_BYTES = 24 << 20
# What begins a handshake that never goes on.
BEGUN = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"


@pytest.mark.skipif(heap() is None, reason="another library of C than glibc")
def test_handshakes_that_never_end_leave_no_memory(tmp_path: Path) -> None:
    """A client that opens connections once would have the broker keep 12 kB for each of them for good."""
    with many_files(), Secured(tmp_path) as secured, ExitStack() as stack:
        broker = secured.start()
        before = resident_bytes(broker.pid)
        for number in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", secured.port), 60))
            if number % 4 == 1:
                client.send(BEGUN)
        wait_for(lambda: resident_bytes(broker.pid) - before > MOST_BYTES, "memory of the handshakes")
        stack.close()
        wait_for(lambda: resident_bytes(broker.pid) - before <= MOST_BYTES, "memory that is free again", seconds=60)
