"""A KRaft cluster over TLS and SASL, controllers included: kbroker beside Apache Kafka 4.3.1, with users and ACLs in
the metadata."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kbroker.testing.security import Security
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_brokers_of_a_secured_cluster_replicate_and_take_over(tmp_path: Path, protocol: str) -> None:
    """A cluster could not be put on a network that is not its own."""
    security = Security(protocol, client_certificates=protocol == "SSL", directory=tmp_path / "tls")
    with running(tmp_path, (Kbroker, Kafka, Kbroker), security=security) as cluster:
        cluster.create("t", SPREAD, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", {1, 2, 3})
        cluster.produce("t", [f"before {number}" for number in range(300)])
        cluster.nodes[1].kill()
        cluster.wait_isr("t", {2, 3})
        cluster.produce("t", [f"after {number}" for number in range(300)])
        cluster.nodes[1].start()
        cluster.wait_isr("t", {1, 2, 3})
        assert len(cluster.consume("t", 3, 600)) == 600


def may_produce(cluster: Cluster, number: int, user: str, password: str) -> bool:
    """Whether a user of SCRAM may write to the topic through one broker."""
    failures = []
    settings = {
        **cluster.client(),
        "bootstrap.servers": f"127.0.0.1:{cluster.nodes[number].port}",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "message.timeout.ms": 3000,
    }
    producer = Producer(settings)
    producer.produce("t", "x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(10)
    return failures == [None]


def test_users_and_acls_of_the_metadata_hold_on_each_broker(tmp_path: Path) -> None:
    """A user of the cluster would be refused by kbroker, or let in where an ACL keeps it out."""
    security = Security("SASL_SSL", directory=tmp_path / "tls")
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings["listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"] = module
    with running(tmp_path, (Kbroker, Kafka), settings=settings, security=security) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.wait_isr("t", {1, 2})
        upsertion = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"alice-secret"
        )
        admin = cluster.admin_of(1)
        admin.alter_user_scram_credentials([upsertion])["alice"].result(30)
        assert not may_produce(cluster, 1, "alice", "alice-secret")
        allowed = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([allowed])[allowed].result(30)
        for number in (1, 2):
            wait_for(lambda at=number: may_produce(cluster, at, "alice", "alice-secret"), f"broker {number} to let in")
            assert not may_produce(cluster, number, "alice", "another")
        assert set(admin.describe_user_scram_credentials().result(30)) == {"alice"}
        with pytest.raises(KafkaException):
            wrong = {**cluster.client(), "sasl.password": "wrong"}
            Producer(wrong).list_topics(timeout=5)


def kbroker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbroker.cli", *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_token_of_the_metadata_logs_in_at_each_broker(tmp_path: Path) -> None:
    """A token would be good at the broker alone that was asked for it, or live on where it was expired."""
    security = Security("SASL_PLAINTEXT", directory=tmp_path / "tls")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{module};",
        "delegation.token.secret.key": "secret",
    }
    with running(tmp_path, (Kbroker, Kafka), settings=settings, security=security) as cluster:
        addresses = [f"127.0.0.1:{node.port}" for node in cluster.nodes.values()]

        def config(name: str, mechanism: str, jaas: str) -> str:
            path = tmp_path / f"{name}.properties"
            lines = ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}")
            path.write_text("\n".join(lines))
            return str(path)

        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        admin = config("admin", "PLAIN", f'{plain} username="admin" password="admin-secret";')
        for at in addresses:
            made = kbroker("tokens", "create", "-b", at, "--command-config", admin, "--json")
            assert made.returncode == 0, made.stdout + made.stderr
            token = json.loads(made.stdout)
            file = config(
                "token",
                "SCRAM-SHA-256",
                f'{module} username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true";',
            )

            def logs_in(where: str, file: str = file) -> bool:
                return kbroker("topics", "list", "-b", where, "--command-config", file).returncode == 0

            for where in addresses:
                wait_for(lambda where=where, logs_in=logs_in: logs_in(where), f"the token to log in at {where}")
