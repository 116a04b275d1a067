"""Brokers that reach each other over TLS and SASL, kbroker's alone and beside Apache Kafka 3.9.1.

Also of `kbroker.security.client.between_brokers`, `kbroker.cluster.outbound`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.testing.security import Security
from tests.cluster.zookeeper.processes import Kafka, Kbroker, Node, running

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
