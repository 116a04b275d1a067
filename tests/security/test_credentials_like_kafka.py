"""Users, delegation tokens and logins: the same answers as Apache Kafka's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import uvloop

from tests.security.credential_scenario import FILE, SETTINGS, scenario
from tests.security.sasl_broker import PLAIN_MODULE, RawClient, sasl_broker

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
            plain, secure = broker.listeners.all

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
