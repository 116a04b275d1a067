"""The metrics server over real sockets, its text read back by the client library's own parser.

Also of `kbroker.metrics.sources`, `kbroker.metrics.start`.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kbroker.metrics import (
    LoopDelaySampler,
    MetricsServer,
    Problem,
    Readiness,
    ReadyState,
    Sources,
    http_server,
    start_metrics_server,
)
from kbroker.metrics.http_server import MAX_CONNECTIONS
from kbroker.metrics.listener_address import console_address, parse_listener
from kbroker.types import TopicPartition
from tests.metrics.http_exchange import Log, exchange, get, sources

Scenario = Callable[[MetricsServer], Awaitable[None]]


def serve(scenario: Scenario, given: Sources | None = None, readiness: Readiness | None = None) -> None:
    async def main() -> None:
        server = await start_metrics_server("http://127.0.0.1:0", given or sources(), readiness or Readiness())
        assert server is not None
        try:
            await asyncio.wait_for(scenario(server), 120)
        finally:
            await server.close()

    uvloop.run(main())


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_shows_what_the_sources_hold() -> None:
    """Dashboards and alerts would show wrong numbers."""

    async def scenario(server: MetricsServer) -> None:
        status, head, body = await get(server, "/metrics?x=1")
        assert status == 200 and "text/plain" in head
        seen = values(body.decode())
        assert seen["kbroker_requests_total", (("api", "Produce"),)] == 2
        assert seen["kbroker_request_errors_total", (("api", "Produce"),)] == 1
        assert seen["kbroker_request_bytes_total", (("api", "Produce"),)] == 500
        assert seen["kbroker_bytes_in_total", ()] == 530
        assert seen["kbroker_bytes_out_total", ()] == 500
        assert seen["kbroker_request_seconds_bucket", (("api", "Produce"), ("le", "1e-05"))] == 0
        assert seen["kbroker_request_seconds_bucket", (("api", "Produce"), ("le", "2e-05"))] == 1
        assert seen["kbroker_request_seconds_bucket", (("api", "Produce"), ("le", "+Inf"))] == 2
        assert seen["kbroker_request_seconds_bucket", (("api", "Metadata"), ("le", "10.48576"))] == 0
        assert seen["kbroker_request_seconds_sum", (("api", "Metadata"),)] == 1000
        assert seen["kbroker_connections", (("listener", "PLAINTEXT"),)] == 3
        assert seen["kbroker_connections_refused_total", (("reason", "limit"),)] == 2
        assert seen["kbroker_partition_log_end_offset", (("partition", "1"), ("topic", "t"))] == 100
        assert seen["kbroker_log_size_bytes", ()] == 2000
        assert seen["kbroker_groups", (("state", "Stable"),)] == 1
        assert seen["kbroker_group_lag", (("group", 'g"1\n'), ("partition", "0"), ("topic", "t"))] == 50
        assert seen["kbroker_group_lag", (("group", 'g"1\n'), ("partition", "1"), ("topic", "t"))] == 0
        assert seen["kbroker_group_lag_sum", (("group", 'g"1\n'),)] == 50
        assert seen["process_resident_memory_bytes", ()] > 1e6
        assert seen["process_open_fds", ()] > 3
        labels = (("cluster_id", "abc"), ("node_id", "7"), ("version", "1.2.3"))
        assert seen["kbroker_build_info", labels] == 1

    serve(scenario)


def test_openmetrics_and_gzip_are_served_when_asked_for() -> None:
    """A Prometheus that negotiates its own format would refuse the answer."""

    async def scenario(server: MetricsServer) -> None:
        accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        status, head, body = await get(server, "/metrics", accept, "Accept-Encoding: gzip")
        assert status == 200 and "application/openmetrics-text" in head and "Content-Encoding: gzip" in head
        names = {family.name for family in parse_openmetrics(gzip.decompress(body).decode())}  # type: ignore[no-untyped-call]
        assert {"kbroker_requests", "kbroker_request_seconds", "kbroker_group_lag"} <= names

    serve(scenario)


def test_many_partitions_are_summed() -> None:
    """Ten thousand partitions would make every scrape tens of megabytes."""
    logs = [Log(TopicPartition(f"t{index % 3}", index)) for index in range(11)]

    async def scenario(server: MetricsServer) -> None:
        seen = values((await get(server, "/metrics"))[2].decode())
        assert seen["kbroker_partitions", ()] == 11
        assert seen["kbroker_topic_size_bytes", (("topic", "t0"),)] == 4000
        assert not any(name.startswith("kbroker_partition_") for name, _ in seen)

    serve(scenario, sources(logs, max_partitions=10))


def test_health_and_readiness() -> None:
    """A load balancer would send clients to a broker that is still recovering, or already leaving."""
    readiness = Readiness()

    async def scenario(server: MetricsServer) -> None:
        readiness.detail = "recovering logs, 3 of 8"
        assert (await get(server, "/healthz"))[0] == 200
        assert (await get(server, "/readyz"))[::2] == (503, b"starting: recovering logs, 3 of 8\n")
        readiness.move(ReadyState.READY)
        assert (await get(server, "/readyz"))[::2] == (200, b"ready\n")
        readiness.move(ReadyState.STOPPING)
        assert (await get(server, "/readyz"))[::2] == (503, b"shutting down\n")
        with pytest.raises(ValueError, match="does not become"):
            readiness.move(ReadyState.READY)

    serve(scenario, readiness=readiness)


def test_a_broker_that_is_ready_says_its_problems() -> None:
    """Monitoring would read `ready` while every produce is refused, or half of the partitions are offline."""
    readiness = Readiness()
    full, lost = [Problem("produce finds no space in /a")], [Problem("28 partitions are offline")]
    readiness.watch(lambda: full, lambda: lost)

    async def scenario(server: MetricsServer) -> None:
        assert (await get(server, "/readyz"))[::2] == (503, b"starting\n")
        readiness.move(ReadyState.READY)
        both = b"ready, with 2 problems:\n- produce finds no space in /a\n- 28 partitions are offline\n"
        assert (await get(server, "/readyz"))[::2] == (200, both)
        full.clear()
        lost[0] = Problem("all partitions are offline", stops_service=True)
        stopped = b"ready, with a problem:\n- all partitions are offline\n"
        assert (await get(server, "/readyz"))[::2] == (503, stopped)
        lost[:] = [Problem(f"number {number}") for number in range(25)]
        status, _, body = await get(server, "/readyz")
        assert (status, body.splitlines()[-2:]) == (200, [b"- number 19", b"- and 5 more"])
        lost.clear()
        assert (await get(server, "/readyz"))[::2] == (200, b"ready\n")

    serve(scenario, readiness=readiness)


def test_other_paths_and_methods_are_refused() -> None:
    """A browser or a probe would hang or get the wrong thing."""

    async def scenario(server: MetricsServer) -> None:
        assert (await get(server, "/"))[0] == 404
        status, head, _ = await get(server, "/metrics", method="DELETE")
        assert status == 405 and "Allow: GET, HEAD" in head
        status, head, body = await get(server, "/healthz", method="HEAD")
        assert status == 200 and "Content-Length: 3" in head and body == b""

    serve(scenario)


def test_pipelined_requests_are_answered_in_order() -> None:
    """A client that keeps its connection would read another request's answer."""

    async def scenario(server: MetricsServer) -> None:
        one = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await exchange(server, one % b"/metrics" + one % b"/healthz" + one % b"/readyz" + last)
        places = [answer.index(mark) for mark in (b"kbroker_requests_total", b"ok\n", b"starting\n", b"not found")]
        assert places == sorted(places) and answer.count(b"HTTP/1.1 ") == 4

    serve(scenario)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 20000, 431),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 413),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x03", 400),
    ],
)
def test_oversized_and_foreign_input_is_refused(data: bytes, status: int) -> None:
    """A stray client could make the broker hold memory or a connection."""

    async def scenario(server: MetricsServer) -> None:
        assert int((await exchange(server, data)).split()[1]) == status
        assert (await get(server, "/healthz"))[0] == 200

    serve(scenario)


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens connections without end would use up the broker's descriptors."""
    # None gives up its place, however long it takes to open them all.
    monkeypatch.setattr(http_server, "PATIENCE_SECONDS", 1000.0)
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 1000.0)

    async def scenario(server: MetricsServer) -> None:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_CONNECTIONS)]
        while len(server.connections) < MAX_CONNECTIONS:
            await asyncio.sleep(0)
        assert (await exchange(server, b"")).startswith(b"HTTP/1.1 503 ")
        for _, writer in held:
            writer.close()

    serve(scenario)


def test_a_busy_port_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Two brokers on a host: the second would not start for want of a metrics port."""

    async def scenario(server: MetricsServer) -> None:
        with caplog.at_level(logging.WARNING, "kbroker.metrics"):
            assert await start_metrics_server(f"http://127.0.0.1:{server.port}", sources(), Readiness()) is None
        (message,) = caplog.messages
        assert str(server.port) in message and "metrics.listener" in message

    serve(scenario)


def test_listener_values() -> None:
    """A valid setting would be refused, or an invalid one taken."""
    assert parse_listener("none") is None
    assert parse_listener("http://[::1]:1234") == ("::1", 1234)
    assert parse_listener("127.0.0.1:99") == ("127.0.0.1", 99)
    assert parse_listener("http://localhost") == ("localhost", 9644)
    assert parse_listener("https://localhost:99") == ("localhost", 99)
    for wrong in ("ftp://x:1", "http://", "http://x:y", "http://x:1/path"):
        with pytest.raises(ValueError):
            parse_listener(wrong)


def test_the_consoles_address_is_one_that_a_browser_opens() -> None:
    """The start would print an address of no host, or of another protocol."""
    assert console_address("http://127.0.0.1:0", 4000) == "http://127.0.0.1:4000/console/"
    assert console_address("https://0.0.0.0:9644", 9644) == "https://localhost:9644/console/"
    assert console_address("[::1]:9644", 9644) == "http://[::1]:9644/console/"


def test_the_loop_delay_shows_a_stall() -> None:
    """Nobody would see what makes every client wait."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sampler = LoopDelaySampler(busy_seconds=0.001)
        sampler.start(loop)
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], check=True)
        while sampler.max_ns < 100_000_000:
            await asyncio.sleep(0)
        sampler.stop()
        total_ns, buckets = sampler.histogram.snapshot()
        assert total_ns >= sampler.max_ns and sum(buckets) >= 1

    uvloop.run(asyncio.wait_for(main(), 120))


def test_the_client_library_is_not_imported_before_a_scrape() -> None:
    """Every start of the broker would pay for a library that most never use."""
    code = "import sys, kbroker.metrics; sys.exit(any('prometheus' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("header", ["Authorization: Basic YTpi", "Host: y", "X-Kbroker-Client: ::1"])
def test_a_header_that_says_who_asks_comes_once(header: str) -> None:
    """A proxy in front may have judged the first one, where the broker would go by the last."""

    async def scenario(server: MetricsServer) -> None:
        name = header.partition(":")[0]
        other = f"{name.upper()}: other"
        status, _, _ = await get(server, "/healthz", header, other)
        assert status == 400

    serve(scenario)
