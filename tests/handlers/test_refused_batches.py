"""What a broker holds of the batches that it has refused."""

from __future__ import annotations

import os
from pathlib import Path

from tests.broker.client import Client
from tests.conftest import BrokerProcess
from tests.network.raw_client import CORRUPT_MESSAGE, INVALID_RECORD, RawClient, batch, produce, produce_answer

GZIP = 1
PAYLOAD_BYTES = 24 << 20
ROUNDS = 12


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_refused_batches_leave_no_memory_behind(broker: BrokerProcess) -> None:
    """A producer that sends one bad batch after the other would fill the memory, beyond queued.max.request.bytes."""
    with Client(broker.port) as client:
        client.create("refused", configs={"max.message.bytes": str(2 * PAYLOAD_BYTES)})
    before = resident_bytes(broker.pid)
    payload = os.urandom(PAYLOAD_BYTES)
    damaged = batch(payload, 3, attributes=GZIP, crc_xor=1)
    unreadable = batch(payload, 3, attributes=GZIP)
    grown = []
    with RawClient(broker.port) as client:
        for _ in range(ROUNDS):
            assert produce_answer(client.ask(produce("refused", 0, damaged))) == (CORRUPT_MESSAGE, -1)
            assert produce_answer(client.ask(produce("refused", 0, unreadable))) == (INVALID_RECORD, -1)
            grown.append(resident_bytes(broker.pid) - before)
    # In each round, as the collector of cycles may have come by in the last one.
    assert max(grown) < 4 * PAYLOAD_BYTES, grown
