"""kafkajs, franz-go, sarama and Kafka's own tools at a broker with TLS, by each mechanism, and ACLs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kbroker.testing import Security
from tests.broker_process import BrokerProcess
from tests.compat.java_tools import TOOLS
from tests.compat.tooling import go_clients, node_folder, run_java

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]
COUNT = 100
PASSWORD = "in wonderland"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENTS: dict[str, Callable[[], Sequence[str]]] = {
    "kafkajs": lambda: ["node", str(node_folder() / "secured.js")],
    "franz-go": lambda: [str(go_clients()), "franz-go"],
    "sarama": lambda: [str(go_clients()), "sarama"],
}
MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.fixture(scope="module", name="secured")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    security = Security(users={"admin": "admin-secret", "alice": PASSWORD})
    settings = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    with BrokerProcess(tmp_path_factory.mktemp("secured"), settings, security=security) as broker:
        for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # One of a user at a time, as Kafka.
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(each, 4096), PASSWORD.encode())
            broker.admin.alter_user_scram_credentials([change])["alice"].result(30)
        file = broker.directory / "admin.properties"
        write_settings(broker, file, "PLAIN", "admin", "admin-secret")
        allowed = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "*", "--group", "*")
        done = tool(broker, f"{TOOLS}.AclCommand", file, *allowed)
        assert done.returncode == 0, done.stderr
        yield broker


def tool(
    broker: BrokerProcess, java_class: str, file: Path, *words: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    return run_java(
        java_class, "--bootstrap-server", broker.bootstrap, "--command-config", str(file), *words, stdin=stdin
    )


def write_settings(broker: BrokerProcess, file: Path, mechanism: str, user: str, password: str) -> None:
    module = f"org.apache.kafka.common.security.{MODULES.get(mechanism, 'scram.ScramLoginModule')}"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.directory / 'tls' / 'ca.pem'}\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "client", ["kafkajs", *(pytest.param(each, marks=pytest.mark.slow) for each in ("franz-go", "sarama"))]
)
def test_records_go_there_and_back(secured: BrokerProcess, client: str, mechanism: str) -> None:
    """Users of the client could not log in, or would lose records under TLS."""
    topic = secured.create_topic(f"{client}-{mechanism}", 2)
    authority = secured.directory / "tls" / "ca.pem"
    words = [*CLIENTS[client](), mechanism, secured.bootstrap, str(authority), "alice", PASSWORD, topic, str(COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.endswith("ok\n"), done.stdout + done.stderr
    assert sum(end for _, end in secured.offsets(topic).values()) == COUNT


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_go_through(secured: BrokerProcess, tmp_path: Path, mechanism: str) -> None:
    """The tools that people have, with their files of settings, would be of no use."""
    topic = secured.create_topic(f"java-{mechanism}")
    file = tmp_path / "client.properties"
    write_settings(secured, file, mechanism, "alice", PASSWORD)
    sent = "".join(f"{number}\n" for number in range(COUNT))
    done = run_java(
        f"{TOOLS}.ConsoleProducer", "--bootstrap-server", secured.bootstrap, "--topic", topic,
        "--command-config", str(file), stdin=sent.encode(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = run_java(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", secured.bootstrap, "--topic", topic,
        "--command-config", str(file), "--from-beginning", "--max-messages", str(COUNT),
    )  # fmt: skip
    assert read.stdout == sent, read.stderr
    refused = tool(secured, f"{TOOLS}.AclCommand", file, "--list")
    assert "ClusterAuthorizationException" in refused.stdout + refused.stderr
