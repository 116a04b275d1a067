"""Users, delegation tokens and logins: the same answers as Apache Kafka's.

Also of `kbroker.handlers.security.delegation_tokens`, `kbroker.handlers.security.scram_credentials`,
`kbroker.security.sasl.credentials`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.compat.real_kafka import KafkaProcess
from tests.ports import free_port
from tests.security.credential_scenario import FILE, SETTINGS, scenario
from tests.security.sasl_broker import PLAIN_MODULE, RawClient, hang_up, sasl_broker

RECORDED: dict[str, Any] = json.loads(FILE.read_text())
USERS = f'{PLAIN_MODULE} required user_admin="admin-pw" user_alice="alice-pw" user_bob="bob-pw";'
OF_BROKER = {
    **SETTINGS,
    "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.2:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "listener.name.secure.plain.sasl.jaas.config": USERS,
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of this broker."""

    async def main() -> dict[str, Any]:
        async with sasl_broker(tmp_path_factory.mktemp("broker"), OF_BROKER) as broker:
            plain, secure = broker.node.listeners.all

            async def dial() -> RawClient:
                return await RawClient.dial(secure.port, broker, "127.0.0.2")

            return await scenario(dial, lambda: RawClient.dial(plain.port, broker))

    found: dict[str, Any] = json.loads(json.dumps(uvloop.run(main())))
    return found


def test_nothing_is_left_out(answers: dict[str, Any]) -> None:
    """An answer could be compared with none."""
    assert answers.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_answered_is_kafkas(answers: dict[str, Any], name: str) -> None:
    """Tools would say something else, or a client would be let in, or refused, where it is not by Kafka."""
    assert answers[name] == RECORDED[name]


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_answers_as_on_record(tmp_path: Path) -> None:
    """The answers that this broker is held to would not be Kafka's."""
    port = free_port()
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    kafka = KafkaProcess(tmp_path / "kafka", {})
    plain, controller = kafka.port, kafka.controller_port
    kafka.settings |= {
        **SETTINGS,
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "listener.name.secure.plain.sasl.jaas.config": USERS,
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
    }

    async def main() -> dict[str, Any]:
        try:
            return await scenario(lambda: RawClient.dial(port), lambda: RawClient.dial(plain))
        finally:
            hang_up()

    try:
        kafka.start()
        found = json.loads(json.dumps(asyncio.run(main())))
    finally:
        kafka.stop()
    assert found == RECORDED
