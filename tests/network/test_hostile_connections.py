"""Connections that misbehave as connections: too many, too slow, idle, impatient, or silent."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.broker.client import open_connections
from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw
from tests.network.many_files import many_files
from tests.network.raw_client import RawClient
from tests.ports import free_port

Start = Callable[..., BrokerProcess]


def still_serves(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        assert client.ask(raw.api_versions())[4:6] == b"\0\0"


def until(condition: Callable[[], bool], broker: BrokerProcess) -> None:
    """Wait for something that the metrics will show; every look is a round trip."""
    for _ in range(2_000):
        if condition():
            return
    raise AssertionError(f"never came true:\n{broker.output()}")


def none_but_ours(broker: BrokerProcess) -> None:
    """The connection that asked whether the broker is ready counts until the broker has seen its end."""
    until(lambda: open_connections(broker.metrics_url) == 0, broker)


def test_ten_thousand_connections_that_send_one_byte(kbroker_process: Start) -> None:
    """A handful of machines could use up the broker's memory or keep others out."""
    with many_files() as limit, ExitStack() as stack:
        count = min(10_000, limit - 500)
        broker = kbroker_process()
        memory = raw.scrape(broker.metrics_url)["process_resident_memory_bytes"]
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
            client.send(b"\0")
        listener = 'kbroker_connections{listener="PLAINTEXT"}'
        until(lambda: raw.scrape(broker.metrics_url)[listener] >= count, broker)
        still_serves(broker)
        held = raw.scrape(broker.metrics_url)["process_resident_memory_bytes"] - memory
        assert held / count < 20_000, f"{held / count:.0f} bytes for each connection"
    until(lambda: raw.scrape(broker.metrics_url)[listener] == 0, broker)


def test_a_slow_reader_costs_others_nothing(kbroker_process: Start) -> None:
    """A consumer that stops reading could fill the broker's memory with its answers, or hold up the others'."""
    broker = kbroker_process()
    raw.create_topic(broker.port, "big")
    with RawClient(broker.port) as client:
        for _ in range(20):
            batch = raw.good_batch(10, bytes(90_000))
            assert raw.produce_answer(client.ask(raw.produce("big", 0, batch)))[0] == raw.NONE
    memory = raw.scrape(broker.metrics_url)["process_resident_memory_bytes"]
    with RawClient(broker.port, receive_buffer_bytes=4096) as slow:
        slow.send(b"".join(raw.fetch("big", 0, 0, max_bytes=16 << 20, correlation_id=each) for each in range(20)))
        with RawClient(broker.port) as client:
            for each in range(500):
                assert client.ask(raw.api_versions(each))[:6] == struct.pack(">ih", each, 0)
        assert raw.scrape(broker.metrics_url)["process_resident_memory_bytes"] - memory < 64 << 20
        for each in range(2):  # and it gets its answers in the end
            answer = slow.read()
            assert answer is not None and answer[:4] == struct.pack(">i", each) and len(answer) > 16_000_000


def test_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    """Clients match answers by place: one that overtakes another corrupts both."""
    raw.create_topic(broker.port, "order")
    requests: list[bytes] = []
    for each in range(0, 300, 3):
        requests.append(raw.produce("order", 0, raw.good_batch(), correlation_id=each))
        # Beyond the end for now: the first of these waits until its time is over.
        requests.append(raw.fetch("order", 0, 3 * (each // 3 + 1), wait_ms=20, correlation_id=each + 1))
        requests.append(raw.api_versions(each + 2))
    with RawClient(broker.port) as client:
        client.send(b"".join(requests))
        for each in range(300):
            answer = client.read()
            assert answer is not None and answer[:4] == struct.pack(">i", each)
    assert raw.end_offset(broker.port, "order") == 300


def test_requests_that_arrive_byte_by_byte_are_served(broker: BrokerProcess) -> None:
    """A client behind a slow line would never be understood."""
    with RawClient(broker.port) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in raw.api_versions(5) + raw.api_versions(6):
            client.send(bytes((each,)))
        for each in (5, 6):
            answer = client.read()
            assert answer is not None and answer[:6] == struct.pack(">ih", each, 0)


def test_produce_without_acknowledgement(broker: BrokerProcess) -> None:
    """An answer nobody waits for would be taken for the next request's."""
    raw.create_topic(broker.port, "quiet")
    with RawClient(broker.port) as client:
        client.send(raw.produce("quiet", 0, raw.good_batch(), acks=0, correlation_id=1))
        assert client.ask(raw.api_versions(2))[:4] == struct.pack(">i", 2)
        assert raw.end_offset(broker.port, "quiet") == 3
        # The only way to tell such a client of an error is to close its connection.
        assert client.closed_after(raw.produce("absent", 0, raw.good_batch(), acks=0, correlation_id=3))
    with RawClient(broker.port) as client:
        assert client.closed_after(raw.produce("quiet", 0, raw.batch(b"", 3, crc_xor=1), acks=0))
    assert raw.end_offset(broker.port, "quiet") == 3


def test_no_more_connections_than_allowed(kbroker_process: Start) -> None:
    """The limit that should protect the broker would not hold, or would never let anyone in again."""
    broker = kbroker_process({"max.connections": "4"})
    none_but_ours(broker)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(4)]
        for client in clients:
            client.ask(raw.api_versions())
        with RawClient(broker.port) as fifth:
            assert fifth.closed_after(raw.api_versions())
        clients[0].socket.close()
        until(lambda: _answers(broker), broker)
    assert "max.connections is reached" in broker.output()


def test_no_more_connections_of_one_address_than_allowed(kbroker_process: Start) -> None:
    """One client with a leak could keep all others out."""
    settings = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    broker = kbroker_process(settings)
    none_but_ours(broker)
    with RawClient(broker.port) as one, RawClient(broker.port) as two, RawClient(broker.port) as three:
        one.ask(raw.api_versions())
        two.ask(raw.api_versions())
        assert three.closed_after(raw.api_versions())
    refused = raw.scrape(broker.metrics_url)
    assert refused['kbroker_connections_refused_total{reason="max.connections.per.ip"}'] >= 1


def test_an_idle_connection_is_closed(kbroker_process: Start) -> None:
    """Connections of clients that died without a word would pile up."""
    broker = kbroker_process({"connections.max.idle.ms": "2000"})
    with RawClient(broker.port) as client:
        client.ask(raw.api_versions())
        assert client.read() is None
    assert raw.scrape(broker.metrics_url)['kbroker_connections_closed_total{reason="idle"}'] >= 1


def test_a_request_over_the_configured_limit(kbroker_process: Start) -> None:
    """The limit on requests could not be lowered on a small machine."""
    broker = kbroker_process({"socket.request.max.bytes": "2000"})
    with RawClient(broker.port) as client:
        client.ask(raw.api_versions())
        assert client.closed_after(struct.pack(">i", 2001) + bytes(100))
    assert "over socket.request.max.bytes=2000" in broker.output()


def test_announced_requests_hold_no_memory(kbroker_process: Start) -> None:
    """A client that announces a large request and sends a few bytes could reserve memory without paying for it."""
    broker = kbroker_process({"queued.max.request.bytes": str(256 << 20)})
    memory = raw.scrape(broker.metrics_url)["process_resident_memory_bytes"]
    with ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(RawClient(broker.port))
            client.send(struct.pack(">ihhi", 100_000_000, raw.PRODUCE, 7, 1))
        still_serves(broker)
        assert raw.scrape(broker.metrics_url)["process_resident_memory_bytes"] - memory < 64 << 20


def _answers(broker: BrokerProcess) -> bool:
    try:
        with RawClient(broker.port) as client:
            client.send(raw.api_versions())
            return client.read() is not None
    except OSError:
        return False


def test_a_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """Clients of one listener could take all connections, and brokers and operators of another could not come in."""
    port, other = free_port(), free_port()
    settings = {
        "listeners": f"INNER://127.0.0.1:{port},OUTER://127.0.0.1:{other}",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
        "listener.name.outer.max.connections": "2",
    }
    with BrokerProcess(tmp_path, settings, port=port) as broker, ExitStack() as ended:

        def is_served(at: int) -> bool:
            client = ended.enter_context(RawClient(at))
            try:
                client.send(raw.api_versions())
                answer = client.read()
            except ConnectionError:
                return False
            return answer is not None and answer[4:6] == b"\0\0"

        assert [is_served(other) for _ in range(4)] == [True, True, False, False]
        assert all(is_served(port) for _ in range(5))
        assert "max.connections is reached" in broker.output()
