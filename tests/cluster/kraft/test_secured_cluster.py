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
from tests.compat.tooling import run_java
from tests.compat.waiting import Waited, wait_for

TOPICS = "org.apache.kafka.tools.TopicCommand"
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


def kbroker(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, input=stdin)


def login(folder: Path, protocol: str, mechanism: str, user: str, password: str, more: str = "") -> str:
    """A file with the settings of a client, in Java's names."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    lines = [
        f"security.protocol={protocol}",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        f'username="{user}" password="{password}"{more};',
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'tls' / 'ca.pem'}",
    ]
    path = folder / f"{user}-{password[:8].replace('/', '-')}.properties"
    path.write_text("\n".join(lines if protocol.endswith("SSL") else lines[:3]))
    return str(path)


def may_produce(cluster: Cluster, number: int, file: str) -> subprocess.CompletedProcess[str] | None:
    """What was said where the client of a file may write to the topic through one broker; None where it may not."""
    done = kbroker(
        "produce", "t", "-b", f"127.0.0.1:{cluster.nodes[number].port}", "--command-config", file, stdin="x\n"
    )
    return done if done.returncode == 0 else None


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
        alice = login(tmp_path, "SASL_SSL", "SCRAM-SHA-256", "alice", "alice-secret")
        other = login(tmp_path, "SASL_SSL", "SCRAM-SHA-256", "alice", "another")
        assert not may_produce(cluster, 1, alice)
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
            wait_for(lambda at=number: may_produce(cluster, at, alice), f"broker {number} to let in", seconds=60)
            assert not may_produce(cluster, number, other)
        assert set(admin.describe_user_scram_credentials().result(30)) == {"alice"}
        with pytest.raises(KafkaException):
            wrong = {**cluster.client(), "sasl.password": "wrong"}
            Producer(wrong).list_topics(timeout=5)


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

        admin = login(tmp_path, "SASL_PLAINTEXT", "PLAIN", "admin", "admin-secret")
        for at in addresses:
            made = kbroker("tokens", "create", "-b", at, "--command-config", admin, "--json")
            assert made.returncode == 0, made.stdout + made.stderr
            token = json.loads(made.stdout)
            words = (token["token_id"], token["hmac"], ' tokenauth="true"')
            file = login(tmp_path, "SASL_PLAINTEXT", "SCRAM-SHA-256", *words)
            for where in addresses:
                said = [""]

                def logs_in(where: str = where, file: str = file, said: list[str] = said) -> bool:
                    done = run_java(TOPICS, "--list", "--bootstrap-server", where, "--command-config", file)
                    said[0] = done.stdout + done.stderr
                    return done.returncode == 0

                try:
                    wait_for(logs_in, f"the token to log in at {where}", seconds=60)
                except Waited as error:
                    raise AssertionError(said[0]) from error
