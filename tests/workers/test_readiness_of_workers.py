"""What `/readyz` of a host says while a worker gives no answer."""

from __future__ import annotations

import asyncio
import secrets
import socket

from kbroker.cluster.workers.worker_slot import WorkerSlot
from kbroker.metrics.readiness import Readiness, ReadyState
from kbroker.supervision.worker_life import WorkerLife
from kbroker.supervision.worker_pages import WorkerPages


def test_a_host_is_not_ready_while_a_worker_that_was_gives_no_answer() -> None:
    """Between the death of a worker and the moment that the supervisor sees it, clients would be sent to it."""
    address = f"@kbroker-test-{secrets.token_hex(8)}"
    slots = {number: WorkerSlot(number, 2, address) for number in (1, 2)}
    lives = {number: WorkerLife() for number in slots}
    for life in lives.values():
        life.ready(0.0)
    readiness = Readiness()
    readiness.move(ReadyState.READY)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nready\n")
        writer.close()
        await writer.wait_closed()

    async def serve(number: int) -> asyncio.Server:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind("\0" + slots[number].metrics_socket[1:])
        return await asyncio.start_unix_server(answer, sock=sock)

    async def run() -> None:
        pages = WorkerPages(slots, lives, readiness)
        async with await serve(1), asyncio.timeout(60):
            async with await serve(2):
                assert await pages.look() == (True, "ready")
            assert await pages.look() == (False, "ready\nworker 2 does not answer")

    asyncio.run(run())
