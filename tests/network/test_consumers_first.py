"""Who hears first of a record that consumers wait for."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import uvloop

from kbroker._fast.log.log_fields import PartitionFields
from kbroker._fast.net.pending import DelayedFetch
from tests.network.served_connection import LATER, WAKE, frame, running, until


def has_bytes(client: socket.socket) -> bool:
    try:
        return len(client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)) > 0
    except BlockingIOError:
        return False


class Echo(DelayedFetch):
    """A consumer that is answered as soon as it is looked at."""

    def __init__(self, purgatory: Any, partitions: Any, body: bytes) -> None:
        super().__init__(purgatory, partitions, 60_000)
        self._body = body

    def attempt(self, force: bool) -> bool:
        self.answer(self._body)
        return True


@pytest.mark.parametrize(
    "consumers, partitions, producer_waits", [(1, 1, True), (4, 9, True), (5, 1, False), (1, 999, False)]
)
def test_a_few_consumers_hear_of_a_record_before_its_producer(
    consumers: int, partitions: int, producer_waits: bool
) -> None:
    """Records would come later by what it takes to wake the producer; or a producer would wait for a hundred others."""

    async def main() -> None:
        async with running() as harness:
            waiting = [socket.create_connection(("127.0.0.1", harness.listener.port)) for _ in range(consumers)]
            for count, each in enumerate(waiting, 1):
                each.send(frame(LATER, 1, b"record"))
                await until(lambda count=count: len(harness.later) == count)

            places: Any = tuple(PartitionFields() for _ in range(partitions))
            for place in places:
                place.waiting = {}
            for pending, body in harness.later:
                pending.give_way(Echo(harness.purgatory, places, body))
            producer = socket.create_connection(("127.0.0.1", harness.listener.port))
            producer.setblocking(False)
            heard: list[tuple[bool, bool]] = []

            def append() -> bytes:
                harness.purgatory.mark(places[0])
                # Right after those who wait are looked at:
                harness.loop.call_soon(
                    lambda: heard.append((all(has_bytes(each) for each in waiting), has_bytes(producer)))
                )
                return b""

            harness.wake = append
            producer.send(frame(WAKE, 2, b""))
            await until(lambda: has_bytes(producer))
            assert heard == [(True, not producer_waits)]
            for each in (*waiting, producer):
                each.close()

    uvloop.run(main())
