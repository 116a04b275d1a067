"""Probes and names of the metrics listener: slow clients keep nobody out, other pages in a browser read nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from kbroker.config import BrokerConfig
from kbroker.metrics import MetricsServer, Readiness, ReadyState
from kbroker.metrics import http_server as under_test
from kbroker.metrics.http_guard import names_of
from tests.metrics.http_exchange import exchange, get, sources

CROWD = 450
BIG = 4 << 20
ASKING = b"GET /metrics HTTP/1.1\r\n\r\n"


class BigPages(MetricsServer):
    """A page that no socket takes at once; `begun` counts how often it was made."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        readiness = Readiness()
        readiness.move(ReadyState.READY)
        super().__init__(sources(), readiness, pages={"logs": self._logs}, hosts=hosts)
        self.size = BIG
        self.begun = 0
        self.go = asyncio.Event()
        self.go.set()

    async def scrape(self, names: str, accept: str) -> tuple[bytes, str]:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        return b"%d" % number + b" " * self.size, "text/plain"

    async def _logs(self, parts: object) -> tuple[int, object]:
        return 200, {}


def serve(scenario: Callable[[BigPages], Awaitable[None]], hosts: Collection[str] = ()) -> None:
    async def main() -> None:
        server = BigPages(hosts)
        await server.listen("127.0.0.1", 0)
        try:
            await asyncio.wait_for(scenario(server), 200)
        finally:
            server.go.set()
            await server.close()

    uvloop.run(main())


async def crowd(stack: AsyncExitStack, server: MetricsServer, sent: bytes, count: int) -> None:
    """Connections that send this and no more, and read nothing."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        stack.callback(transport.abort)
        transport.pause_reading()
        transport.write(sent)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def answered(server: MetricsServer) -> int:
    """How many requests are being answered."""
    return sum(each.idle_since is None for each in server.connections)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half:", ASKING],
    ids=["nothing", "half a request", "no reading"],
)
def test_slow_clients_keep_no_probe_out(sent: bytes) -> None:
    """An orchestrator would end a broker that is well because somebody else is slow."""

    async def scenario(server: BigPages) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await crowd(stack, server, sent, CROWD // 3)
                for path in ("/readyz", "/healthz"):
                    assert (await get(server, path))[0] == 200
            assert len(server.connections) <= under_test.MAX_CONNECTIONS + under_test.MAX_EXTRA

    serve(scenario)


def test_the_idlest_of_many_connections_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scraper would be kept out for as long as somebody holds connections open."""
    monkeypatch.setattr(under_test, "PATIENCE_SECONDS", 0.0)

    async def scenario(server: BigPages) -> None:
        async with AsyncExitStack() as stack:
            await crowd(stack, server, ASKING[:-2], under_test.MAX_CONNECTIONS)
            await until(lambda: len(server.connections) == under_test.MAX_CONNECTIONS)
            assert (await get(server, "/metrics"))[0] == 200

    serve(scenario)


def test_beyond_the_limit_there_are_probes_alone() -> None:
    """Every page would be made for as many as ask, at once."""

    async def scenario(server: BigPages) -> None:
        async with AsyncExitStack() as stack:
            server.go.clear()
            await crowd(stack, server, ASKING, under_test.MAX_CONNECTIONS)
            await until(lambda: answered(server) == under_test.MAX_CONNECTIONS)
            assert (await get(server, "/metrics"))[0] == 503
            assert (await get(server, "/readyz"))[0] == 200

    serve(scenario)


@pytest.mark.parametrize("asking", [ASKING, b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"])
def test_an_answer_that_is_not_read_ends_its_connection(asking: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes would be held for as long as the client likes."""
    monkeypatch.setattr(under_test, "IDLE_SECONDS", 0.05)

    async def scenario(server: BigPages) -> None:
        async with AsyncExitStack() as stack:
            await crowd(stack, server, asking, 1)
            await until(lambda: server.begun == 1)
            await until(lambda: not server.connections)

    serve(scenario)


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
def test_an_answer_goes_on_for_as_long_as_something_of_it_is_read(ending: bytes) -> None:
    """A person behind a slow line would get the first part of a large file."""

    async def scenario(server: BigPages) -> None:
        server.size = 8 * BIG
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setblocking(False)
            client.sendall(b"GET /metrics HTTP/1.1\r\n" + ending + b"\r\n")
            await until(lambda: any(each.unread_bytes for each in server.connections))
            (connection,) = server.connections
            loop, left = asyncio.get_running_loop(), connection.unread_bytes
            for _ in range(3):
                while connection.unread_bytes == left:
                    await loop.sock_recv(client, 1 << 16)
                left = connection.unread_bytes
                assert left
                connection.time_is_up()
                assert connection in server.connections
            connection.time_is_up()
            await until(lambda: not server.connections)

    serve(scenario)


def test_an_answer_that_is_read_slowly_comes_whole_and_the_next_one_after_it() -> None:
    """A scraper behind a slow line would get half a page, or two that are mixed."""

    async def scenario(server: BigPages) -> None:
        answer = await exchange(server, ASKING + b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200 OK") == 2 and answer.endswith(b"ok\n")
        assert len(answer) > BIG

    serve(scenario)


def test_scrapes_at_the_same_time_share_one_page_that_is_not_older_than_the_question() -> None:
    """A crowd of scrapers would hold the loop of the broker, or one be shown what was before."""

    async def scenario(server: BigPages) -> None:
        server.go.clear()
        first = asyncio.create_task(get(server, "/metrics"))
        await until(lambda: server.begun == 1)
        later = [asyncio.create_task(get(server, "/metrics")) for _ in range(20)]
        await until(lambda: answered(server) == 21)
        server.go.set()
        assert (await first)[2].split()[0] == b"1"
        assert {(await each)[2].split()[0] for each in later} == {b"2"}
        assert server.begun == 2

    serve(scenario)


async def asked_as(server: MetricsServer, path: str, host: str | None) -> int:
    """The status of a request with this Host header."""
    named = "" if host is None else f"Host: {host}\r\n"
    answer = await exchange(server, f"GET {path} HTTP/1.1\r\n{named}Connection: close\r\n\r\n".encode())
    return int(answer.split()[1])


@pytest.mark.parametrize("path", ["/metrics", "/logs", "/logs/t/0", "/readyz", "/healthz"])
def test_no_page_is_served_under_a_name_of_somebody_else(path: str, tmp_path: Path) -> None:
    """A web page whose name is made to lead to the broker could read the names of topics and clients."""
    config = BrokerConfig.from_mapping(
        {
            "log.dirs": str(tmp_path),
            "metrics.listener": "http://metrics.example:9644",
            "listeners": "PLAINTEXT://Broker.Example:9092",
            "advertised.listeners": "PLAINTEXT://outside.example:9092",
            "kbroker.console.hosts": "proxy.example",
        }
    )

    async def scenario(server: BigPages) -> None:
        for host in (
            *("127.0.0.1:9644", "10.1.2.3:9644", "[fd00::1]:9644", "localhost:1", "kbroker:9644"),
            *("metrics.example", "broker.example:9644", "outside.example", "proxy.example:80", None),
        ):
            assert await asked_as(server, path, host) == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example:9644", "[::1"):
            assert await asked_as(server, path, host) == 421, host

    serve(scenario, names_of(config))
