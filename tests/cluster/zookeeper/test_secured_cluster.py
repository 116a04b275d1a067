"""Brokers that reach each other over TLS and SASL, kbroker's alone and beside Apache Kafka 3.9.1.

Also of `kbroker.security.client.between_brokers`, `kbroker.cluster.outbound`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.security import Security
from tests.broker_process import BrokerProcess
from tests.cluster.zookeeper.processes import SETTINGS, Kafka, Kbroker, Node, running
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.zookeeper_server import zookeeper_server

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((Kbroker, Kbroker, Kbroker), id="kbroker"),
        pytest.param((Kbroker, Kafka, Kbroker), id="mixed", marks=pytest.mark.kafka),
        pytest.param((Kafka, Kbroker, Kbroker), id="kafka-first", marks=pytest.mark.kafka),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_brokers_of_a_secured_cluster_replicate_and_take_over(
    tmp_path: Path, kinds: tuple[type[Node], ...], protocol: str
) -> None:
    """A cluster could not be put on a network that is not its own."""
    security = Security(protocol, client_certificates=protocol == "SSL", directory=tmp_path / "tls")
    with running(tmp_path, kinds, AUTHORIZER, security=security) as cluster:
        everyone = set(cluster.nodes)
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3, everyone)
        values = [f"before {number}" for number in range(300)]
        cluster.produce("t", values)
        cluster.nodes[1].kill()
        cluster.wait_registered(everyone - {1})
        cluster.wait_isr("t", 3, everyone - {1})
        more = [f"after {number}" for number in range(300)]
        cluster.produce("t", more)
        cluster.nodes[1].start()
        cluster.wait_isr("t", 3, everyone)
        found = cluster.consume("t", 3, len(values) + len(more))
        assert sorted(found) == sorted(values + more)


class Sending:
    """A producer that goes on until it is ended; every record has to be acknowledged."""

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        self.sent: list[str] = []
        self.failed: list[KafkaError] = []
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self._name = name
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            value = f"{self._name} {len(self.sent)}"
            self.sent.append(value)
            self._producer.produce("t", value, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.failed.append(error)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(60) == 0 and not self.failed


def test_a_plaintext_cluster_is_secured_without_an_outage(tmp_path: Path) -> None:
    """docs/security.md would lead people into a cluster whose brokers or clients cannot reach each other."""
    security = Security(directory=tmp_path / "tls")
    with zookeeper_server(tmp_path / "zookeeper") as server, ExitStack() as ended:
        brokers = [
            ended.enter_context(
                BrokerProcess(
                    tmp_path / f"broker-{number}",
                    {**SETTINGS, "broker.id": str(number), "zookeeper.connect": server.address},
                )
            )
            for number in (1, 2, 3)
        ]
        secured = {broker: free_port() for broker in brokers}
        everywhere = {"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers)}
        behind = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in secured.values()),
            **security.client_settings(tmp_path / "tls", "admin"),
        }
        admin = AdminClient(everywhere)
        admin.create_topics([NewTopic("t", 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])])["t"].result(30)

        def in_sync(settings: Mapping[str, str]) -> bool:
            try:
                found = AdminClient(dict(settings)).list_topics("t", timeout=10).topics["t"].partitions
            except KafkaException:
                return False
            return len(found) == 3 and all(len(each.isrs) == 3 for each in found.values())

        def roll(change: Callable[[BrokerProcess], None], settings: Mapping[str, str]) -> None:
            for broker in brokers:
                broker.stop()
                change(broker)
                broker.start()
                wait_for(lambda: in_sync(settings), "all replicas to be in sync", seconds=60)

        def add_listener(broker: BrokerProcess) -> None:
            found = security.settings(tmp_path / "tls", secured[broker])
            left = ("authorizer.class.name", "super.users", "security.inter.broker.protocol")
            broker.overrides |= {name: text for name, text in found.items() if name not in left}
            broker.overrides["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},{found['listeners']}"

        def reach_each_other(broker: BrokerProcess) -> None:
            broker.overrides["security.inter.broker.protocol"] = security.protocol

        def authorize(broker: BrokerProcess) -> None:
            broker.overrides |= AUTHORIZER | {"super.users": "User:admin"}

        def close_the_old(broker: BrokerProcess) -> None:
            broker.security, broker.port = security, secured[broker]
            broker.overrides["listeners"] = f"{security.protocol}://127.0.0.1:{broker.port}"

        wait_for(lambda: in_sync(everywhere), "all replicas to be in sync", seconds=60)
        old = Sending(everywhere, "old")
        roll(add_listener, everywhere)
        roll(reach_each_other, everywhere)
        new = Sending(behind, "new")
        old.end()
        roll(authorize, behind)
        roll(close_the_old, behind)
        new.end()
        consumer = Consumer({**behind, "group.id": "all", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        values: list[str] = []
        while len(values) < len(old.sent) + len(new.sent):
            message = consumer.poll(60)
            assert message is not None and message.error() is None, message
            values.append(message.value().decode())
        consumer.close()
        assert sorted(values) == sorted(old.sent + new.sent)
