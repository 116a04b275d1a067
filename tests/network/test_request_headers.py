"""Headers that are unlike others."""

from __future__ import annotations

import struct

import pytest
import uvloop

from tests.network.served_connection import CONTROLLED_SHUTDOWN, answer, frame, running

pytestmark = pytest.mark.usefixtures("every_kind")


def test_a_controlled_shutdown_of_kafka_0_8_2_is_read_without_a_client_id() -> None:
    """Its header has none: the body was taken for one, the connection closed, and a broker that stops left partitions
    without a leader."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            node_id = struct.pack(">i", 7)
            head = struct.pack(">hhi", CONTROLLED_SHUTDOWN, 0, 1)
            writer.write(struct.pack(">i", len(head) + len(node_id)) + head + node_id)
            writer.write(frame(CONTROLLED_SHUTDOWN, 2, node_id, version=1))
            assert [await answer(reader) for _ in range(2)] == [(1, b"None " + node_id), (2, b"test " + node_id)]
            writer.close()

    uvloop.run(main())
