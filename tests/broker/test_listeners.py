"""Listeners: several at once, by name, on IPv4, IPv6 and every interface; the address clients are told; and limits.

Also of `kbroker.assembly.listening`, `kbroker.config.listener`.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping

import pytest

from tests.broker.client import Batch, Client, Closed, fetch_values, open_connections, scrape, until
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.ports import free_port

# As long as this process may wait for a processor between two requests.
IDLE_MS = "4000"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SIX:PLAINTEXT"


def bound_ports(broker: BrokerProcess) -> dict[str, int]:
    """The port of each listener, as the ready line tells them."""
    (line,) = [line for line in broker.output().splitlines() if " ready on " in line][-1:]
    return {name: int(port) for name, port in re.findall(r"(\w+)://\S*?:(\d+)(?=[, ])", line)}


def addresses_told(port: int, host: str = "127.0.0.1") -> list[tuple[str, int]]:
    """Where Metadata, DescribeCluster and FindCoordinator send a client that dialled this address."""
    with Client(port, host) as client:
        metadata = client.ask("Metadata", 9, {"topics": []}).brokers[0]
        cluster = client.ask("DescribeCluster", 0, {}).brokers[0]
        coordinator = client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]}).coordinators[0]
    return [(each.host, each.port) for each in (metadata, cluster, coordinator)]


def ready(broker: BrokerProcess) -> dict[str, int]:
    """Start a broker that picks its own ports."""
    broker.spawn()
    until(lambda: " ready on " in broker.output() or not broker.running, "the broker to be ready")
    assert broker.running, broker.output()
    return bound_ports(broker)


def test_each_listener_tells_the_address_that_was_dialled(kbroker_process: StartBroker) -> None:
    """A client would be sent to an address that it cannot reach, the most common failure of a first try."""
    listeners = "INSIDE://127.0.0.1:0,OUTSIDE://:0,SIX://[::1]:0"
    settings = {"listeners": listeners, "listener.security.protocol.map": PROTOCOLS}
    broker = kbroker_process({**settings, "inter.broker.listener.name": "INSIDE"}, wait=False)
    ports = ready(broker)
    assert addresses_told(ports["INSIDE"]) == [("127.0.0.1", ports["INSIDE"])] * 3
    assert addresses_told(ports["SIX"], "::1") == [("::1", ports["SIX"])] * 3
    for host in ("127.0.0.1", "127.0.0.2", "::1"):
        assert addresses_told(ports["OUTSIDE"], host) == [(host, ports["OUTSIDE"])] * 3


def test_advertised_listeners_win_for_those_that_they_name(kbroker_process: StartBroker) -> None:
    """Clients behind a proxy or in another network would not find the broker."""
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://:0",
        "advertised.listeners": "OUTSIDE://kafka.example.com:19092",
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "INSIDE",
    }
    ports = ready(kbroker_process(settings, wait=False))
    assert addresses_told(ports["OUTSIDE"]) == [("kafka.example.com", 19092)] * 3
    assert addresses_told(ports["INSIDE"]) == [("127.0.0.1", ports["INSIDE"])] * 3


def test_every_interface_is_both_families(kbroker_process: StartBroker) -> None:
    """Half of the clients would find nobody."""
    ports = ready(kbroker_process({"listeners": "PLAINTEXT://:0"}, wait=False))
    for host in ("127.0.0.1", "::1"):
        with Client(ports["PLAINTEXT"], host) as client:
            assert client.ask("ApiVersions", 0, {}).error_code == 0


def test_localhost_is_reached_by_ipv4(kbroker_process: StartBroker) -> None:
    """Where `localhost` has two addresses, clients that dial 127.0.0.1 would be refused; Kafka takes the IPv4 one."""
    ports = ready(kbroker_process({"listeners": "PLAINTEXT://localhost:0"}, wait=False))
    with Client(ports["PLAINTEXT"]) as client:
        assert client.ask("ApiVersions", 0, {}).error_code == 0


def test_the_same_port_on_two_addresses(kbroker_process: StartBroker) -> None:
    """One port for IPv4 and IPv6 clients would need two brokers."""
    port = free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SIX://[::1]:{port}",
        "listener.security.protocol.map": PROTOCOLS,
    }
    ready(kbroker_process(settings, wait=False))
    assert addresses_told(port) == [("127.0.0.1", port)] * 3
    assert addresses_told(port, "::1") == [("::1", port)] * 3


class Dialled:
    """Connections of one test."""

    def __init__(self) -> None:
        self.open: list[Client] = []

    def __enter__(self) -> Dialled:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.open:
            client.close()

    def served(self, port: int, host: str = "127.0.0.1", source: str = "") -> bool:
        """Dial; whether the broker answers (and the connection is kept) or hangs up."""
        client = Client(port, host, source=source)
        try:
            client.send("ApiVersions", 0, {})
            client.answer("ApiVersions", 0)
        except Closed:
            client.close()
            return False
        self.open.append(client)
        return True


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_overrides_are_by_address_on_any_listener(kbroker_process: StartBroker, host: str) -> None:
    """A proxy with many clients behind it would be locked out, or one client would take all connections."""
    settings: Mapping[str, str] = {
        "listeners": f"PLAINTEXT://{host}:0",
        "max.connections.per.ip": "2",
        "max.connections.per.ip.overrides": "127.0.0.1:4, 127.0.0.3:0",
    }
    broker = kbroker_process(settings, wait=False)
    port = ready(broker)["PLAINTEXT"]
    with Dialled() as dialled:
        assert [dialled.served(port, source="127.0.0.1") for _ in range(6)] == [True] * 4 + [False] * 2
        assert not dialled.served(port, source="127.0.0.3")
        assert [dialled.served(port, source="127.0.0.2") for _ in range(3)] == [True, True, False]
        dialled.open.pop(0).close()
        until(lambda: open_connections(broker.metrics_url) == 5, "the connection to be gone")
        assert dialled.served(port, source="127.0.0.1")


def test_limits_count_all_listeners_together(kbroker_process: StartBroker) -> None:
    """A broker with many listeners would take many times the connections that it has descriptors for."""
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0",
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "INSIDE",
        "max.connections": "3",
    }
    broker = kbroker_process(settings, wait=False)
    ports = ready(broker)
    with Dialled() as dialled:
        assert dialled.served(ports["INSIDE"])
        assert dialled.served(ports["OUTSIDE"], "127.0.0.2")
        assert dialled.served(ports["INSIDE"])
        assert not dialled.served(ports["OUTSIDE"], "127.0.0.2")
        found = scrape(broker.metrics_url)
    assert found['kbroker_connections{listener="INSIDE"}'] == 2
    assert found['kbroker_connections{listener="OUTSIDE"}'] == 1
    assert found['kbroker_connections_refused_total{reason="max.connections"}'] >= 1
    assert "refused a connection from 127.0.0.1: max.connections is reached" in broker.output()


def test_a_connection_that_waits_is_not_idle(kbroker_process: StartBroker) -> None:
    """A consumer that waits for rare records would be cut off again and again."""
    broker = kbroker_process({"connections.max.idle.ms": IDLE_MS})
    with contextlib.ExitStack() as clients:
        writer = clients.enter_context(Client(broker.port))
        writer.create("t")
        waiting, idle = (clients.enter_context(Client(broker.port)) for _ in range(2))
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        topics = [{"topic": "t", "partitions": [row]}]
        waiting.send("Fetch", 11, {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1000, "topics": topics})
        assert idle.hung_up()
        assert writer.hung_up()
        with Client(broker.port) as other:
            other.write("t")
        assert waiting.answer("Fetch", 11).responses[0].partitions[0].high_watermark == 1


def test_a_reader_that_takes_nothing_is_idle(kbroker_process: StartBroker) -> None:
    """Consumers that hang would hold connections, files and deleted segments for ever."""
    broker = kbroker_process({"connections.max.idle.ms": IDLE_MS})
    with Client(broker.port) as stuck:
        stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.create("t")
        stuck.write("t", *[Batch([(None, bytes(900_000))])] * 12)
        stuck.send("Fetch", 11, fetch_values("t", limit=50 << 20))
        stuck.socket.recv(1)
        until(lambda: open_connections(broker.metrics_url) == 0, "the broker to hang up")
    assert scrape(broker.metrics_url)['kbroker_connections_closed_total{reason="idle"}'] >= 1


def test_connections_stop_before_the_process_runs_out_of_files(kbroker_process: StartBroker) -> None:
    """Clients would be dropped without a word, and logs could not be opened any more."""
    broker = kbroker_process(wait=False)
    broker.prefix = ["sh", "-c", 'ulimit -Sn 200 && ulimit -Hn 300 && exec "$0" "$@"']
    broker.start()
    with Dialled() as dialled:
        # A third of 300 may be open segments, 128 are kept.
        assert [dialled.served(broker.port) for _ in range(200)] == [True] * 72 + [False] * 128
        assert "refused a connection from 127.0.0.1: the limit of open files (ulimit -n) is reached" in broker.output()
        dialled.open[0].create("t", 20)
        dialled.open[0].write("t")


@pytest.mark.slow
def test_clients_that_are_sent_to_where_nothing_is_are_told_of(kbroker_process: StartBroker) -> None:
    """The user of a container would look for the fault at the client: it has reached the broker, and does nothing."""
    port = free_port()
    broker = kbroker_process({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    with Client(broker.port) as client:
        client.ask("ApiVersions", 3, {"client_software_name": "x", "client_software_version": "1"})
        client.ask("Metadata", 9, {"topics": []})
        wait_for(lambda: "has not come there" in broker.output(), "the warning", seconds=60)
        assert f"was told 127.0.0.1:{port}" in broker.output()
        with Client(broker.port) as other:
            other.ask("Metadata", 9, {"topics": []})
            other.ask("ListGroups", 4, {})
