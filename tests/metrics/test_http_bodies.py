"""Bodies of requests to the metrics listener: who may send one, how large, and how much of them is held at one time.

Also of `kbroker.metrics.http_requests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kbroker.metrics import MetricsServer, Readiness, ReadyState
from kbroker.metrics.http_messages import Answer, Request
from kbroker.metrics.http_requests import Bodies
from tests.metrics.http_exchange import exchange, sources

LIMIT = 1000


def serve(scenario: Callable[[MetricsServer], Awaitable[None]]) -> None:
    """A site that answers with what was sent to it, and another that takes nothing."""

    async def site(request: Request) -> Answer:
        return Answer(200, f"{request.method} {request.content_type} {request.console} ".encode() + request.body)

    async def main() -> None:
        readiness = Readiness()
        readiness.move(ReadyState.READY)
        sites = {"takes": site, "reads": site}
        server = MetricsServer(sources(), readiness, sites=sites, bodies={"takes": lambda _path: LIMIT})
        await server.listen("127.0.0.1", 0)
        try:
            await scenario(server)
            while server.connections:
                await asyncio.sleep(0)
            assert server.bodies.held_bytes == 0
        finally:
            await server.close()

    asyncio.run(main())


def asked(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    """A request with a body, after which the connection is closed."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join((*lines, "", "")).encode() + body


def test_a_body_reaches_the_site_that_takes_it() -> None:
    """The console could not be asked to change anything."""

    async def scenario(server: MetricsServer) -> None:
        request = asked("/takes/x", b"b" * LIMIT, "Content-Type: application/json", "X-Kbroker-Console: 1")
        answer = await exchange(server, request)
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"POST application/json 1 " + b"b" * LIMIT)
        chunked = b"POST /takes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await exchange(server, chunked + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert answer.endswith(b"abcde")

    serve(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (asked("/takes", b"b" * (LIMIT + 1)), 413),
        (asked("/takes", b"b", "Content-Length: 2"), 400),
        (asked("/reads", b"b"), 413),
        (asked("/metrics", b"b"), 413),
        (asked("/takes", b"b", method="GET"), 413),
        (asked("/takes", b"b", method="PUT"), 413),
        (asked("/reads", b""), 405),
        (b"POST /takes HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /takes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"b" * 2000, 413),
    ],
)
def test_other_bodies_are_refused(request_bytes: bytes, status: int) -> None:
    """Anybody who reaches the listener could fill the memory, or write where only reading is meant."""

    async def scenario(server: MetricsServer) -> None:
        assert (await exchange(server, request_bytes)).startswith(f"HTTP/1.1 {status} ".encode())

    serve(scenario)


def test_all_bodies_together_are_bounded_and_given_back() -> None:
    """Many clients that each send a part of a body would take the memory of the broker for as long as they like."""

    async def scenario(server: MetricsServer) -> None:
        server.bodies = Bodies(most_bytes=1500)
        head = f"POST /takes HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT}\r\n\r\n".encode()
        _, first = await asyncio.open_connection("127.0.0.1", server.port)
        first.write(head + b"b" * (LIMIT - 1))
        while server.bodies.held_bytes < LIMIT - 1:
            await asyncio.sleep(0)
        assert (await exchange(server, asked("/takes", b"b" * LIMIT))).startswith(b"HTTP/1.1 503 ")
        first.transport.abort()
        while server.bodies.held_bytes:
            await asyncio.sleep(0)
        assert (await exchange(server, asked("/takes", b"b" * LIMIT))).startswith(b"HTTP/1.1 200 ")

    serve(scenario)


def test_bodies_count_until_they_are_answered() -> None:
    """Clients whose proofs take long (a token of a slow server) would each have a whole body held, uncounted."""
    proved = asyncio.Event()

    class Slow:
        challenge, refusal = "", "no"

        async def viewer(self, _authorization: str, _host: str) -> None:
            await proved.wait()

    async def scenario(server: MetricsServer) -> None:
        server.access = Slow()
        server.bodies = Bodies(most_bytes=2 * LIMIT)
        writers = []
        # One whose client waits, and one whose client goes.
        for number in (1, 2):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(asked("/takes", b"b" * LIMIT))
            writers.append(writer)
            while server.bodies.held_bytes < number * LIMIT:
                await asyncio.sleep(0)
        assert (await exchange(server, asked("/takes", b"b"))).startswith(b"HTTP/1.1 503 ")
        writers[0].transport.abort()
        proved.set()
        while server.bodies.held_bytes:
            await asyncio.sleep(0)
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    serve(scenario)
