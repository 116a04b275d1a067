"""Every API in every version before a client has logged in, over a listener with SASL: kbroker and Apache Kafka."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers.dispatch import broker_rows, member_rows
from kbroker.protocol.api import ApiKey
from tests.compat.real_kafka import KafkaProcess
from tests.gate.guarded_broker import GuardedBroker
from tests.ports import free_port

LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret";'
)
SECURED = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
FIRST_WITH_NAMES, NAMES = 3, b"\0\x02a\x02b\0"
# What a client begins with; `tests/security/sasl` has what becomes of it.
TO_LOG_IN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
ASKED = sorted(
    {
        (int(handler.api_key), version)
        for handler in (*broker_rows(), *member_rows())
        for version in range(handler.max_version + 1)
        if handler.api_key not in TO_LOG_IN
    }
)


def answered(port: int) -> set[tuple[int, int]]:
    """What a broker answers; it hangs up on all else."""
    found = set()
    for api_key, version in ASKED:
        named = api_key == ApiKey.API_VERSIONS and version >= FIRST_WITH_NAMES
        body = struct.pack(">hhih", api_key, version, 1, -1) + (NAMES if named else bytes(32))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(struct.pack(">i", len(body)) + body)
            try:
                got = client.recv(8)
            except ConnectionResetError:
                got = b""
            if got:
                found.add((api_key, version))
    return found


@pytest.fixture(scope="module", name="of_kbroker")
def _of_kbroker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[tuple[int, int]]]:
    port = free_port()
    settings = {**SECURED, "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}"}
    broker = GuardedBroker(tmp_path_factory.mktemp("secured"), settings, by_settings=True)
    broker.start()
    yield answered(port)
    broker.stop()


def test_before_a_login_nothing_is_answered_but_which_versions_there_are(of_kbroker: set[tuple[int, int]]) -> None:
    """Whoever connects would be served without a name."""
    assert len(ASKED) > 300
    assert {api_key for api_key, _ in of_kbroker} == {ApiKey.API_VERSIONS}
    assert len(of_kbroker) == 5


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_answers_as_little(of_kbroker: set[tuple[int, int]], tmp_path: Path) -> None:
    """A client would find another door open, or another one shut, than at Kafka."""
    kafka = KafkaProcess(tmp_path, SECURED)
    kafka.settings |= {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "early.start.listeners": "CONTROLLER",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    try:
        kafka.start()
        assert answered(kafka.port) == of_kbroker
    finally:
        kafka.stop()
