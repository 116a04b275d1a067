"""A broker with TLS, users and ACLs as people run it, and kbroker's commands and clients at it.

Also of `kbroker.testing.security`, `kbroker.security.listeners`, `kbroker.security.sasl.listeners`,
`kbroker.security.sasl.settings`, `kbroker.handlers.security.authentication`, `kbroker.security.tls.client_context`,
`kbroker.security.tls.listener`, `kbroker.security.tls.server_context`.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.errors import ClientError
from kbroker.security.client.librdkafka_settings import librdkafka_security
from kbroker.testing import Security
from tests.broker_process import BrokerProcess

USERS = {"admin": "admin-secret", "alice": 'in "wonderland"'}
KINDS = {
    "SASL_SSL": Security("SASL_SSL", USERS),
    "SASL_PLAINTEXT": Security("SASL_PLAINTEXT", USERS),
    "SSL": Security("SSL", client_certificates=True),
}


@pytest.fixture(scope="module", params=list(KINDS))
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("secured"), security=KINDS[request.param]) as found:
        yield found


def command(
    broker: BrokerProcess, *words: str, user: str = "admin", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`kbroker WORDS`, with the user's settings in a file."""
    path = broker.directory / f"{user}.properties"
    settings = {name: text for name, text in broker.client_settings(user).items() if name != "bootstrap.servers"}
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return subprocess.run(
        [sys.executable, "-m", "kbroker.cli", *words, "-b", broker.bootstrap, "--command-config", str(path)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_records_go_through(broker: BrokerProcess) -> None:
    """Nobody could put kbroker on a network that is not theirs."""
    topic = broker.create_topic("through", 2)
    producer = Producer(broker.client_settings())
    values = {bytes([number % 256]) * (number * 997 % 100_000 + 1) for number in range(200)}
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer({**broker.client_settings(), "group.id": "through", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = set()
    while found != values:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        found.add(message.value())
    consumer.close()


def test_pythons_strictest_client_takes_the_certificates(broker: BrokerProcess) -> None:
    """Since Python 3.13 a client is as strict unless told otherwise; it would not connect to a broker for tests."""
    security = broker.security
    assert security is not None
    if not security.encrypts:
        pytest.skip("no certificates")
    context = security.context(broker.tls_dir)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with (
        socket.create_connection(("127.0.0.1", broker.port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.version() == "TLSv1.3"


def test_the_wire_client_logs_in(broker: BrokerProcess) -> None:
    """Commands over Kafka's own protocol and Spark's sources could not be used with security."""
    broker.create_topic("wired", 3)
    settings = broker.client_settings()
    with Cluster(settings.pop("bootstrap.servers"), ClientSettings(security=librdkafka_security(settings))) as cluster:
        assert len(cluster.describe(["wired"])["wired"].partitions) == 3


def test_without_rights_there_is_nothing(broker: BrokerProcess) -> None:
    """A user would read what belongs to others."""
    topic = broker.create_topic("closed")
    settings = broker.client_settings("alice")
    consumer = Consumer({**settings, "group.id": "closed", "auto.offset.reset": "earliest"})
    with pytest.raises(KafkaException) as refused:
        consumer.list_topics(topic, timeout=30)
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())
    assert refused.value.args[0].name() in ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
    consumer.close()
    settings.pop("bootstrap.servers")
    with Cluster(broker.bootstrap, ClientSettings(security=librdkafka_security(settings))) as cluster:
        assert "closed" not in cluster.list_topics()


def test_a_client_without_security_gets_no_answer(broker: BrokerProcess) -> None:
    """The listener would be open to everybody who speaks no TLS, or leaves SASL out."""
    for settings in ({}, {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}):
        security = librdkafka_security(settings)
        with (
            pytest.raises(ClientError),
            Cluster(broker.bootstrap, ClientSettings(security=security, patience_s=1)) as it,
        ):
            it.list_topics()


def test_commands_take_a_file_of_settings(broker: BrokerProcess) -> None:
    """`kbroker topics` would be of no use where it matters."""
    made = command(broker, "topics", "create", "by-command", "-p", "2")
    assert made.returncode == 0, made.stderr
    sent = command(broker, "produce", "by-command", stdin="one\ntwo\n")
    assert sent.returncode == 0, sent.stderr
    read = command(broker, "consume", "by-command", "--from-beginning", "--exit-at-end")
    assert sorted(read.stdout.split()) == ["one", "two"], read.stderr
    for words in (("cluster", "status"), ("quotas", "list"), ("transactions", "list")):
        done = command(broker, *words)
        assert done.returncode == 0, (words, done.stderr)
    refused = command(broker, "topics", "create", "not-by-alice", user="alice")
    assert refused.returncode != 0 and "AUTHORIZATION_FAILED" in refused.stderr


def test_a_wrong_password_is_told_as_one(broker: BrokerProcess) -> None:
    """A person would look for the fault in the network."""
    assert broker.security is not None
    if not broker.security.authenticates:
        return  # Here a certificate stands for the password.
    settings = {**broker.client_settings(), "sasl.password": "wrong"}
    settings.pop("bootstrap.servers")
    with (
        pytest.raises(ClientError, match="Authentication failed"),
        Cluster(broker.bootstrap, ClientSettings(security=librdkafka_security(settings), patience_s=1)) as cluster,
    ):
        cluster.list_topics()
