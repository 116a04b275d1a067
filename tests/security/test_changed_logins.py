"""Login modules and mechanisms that are changed while a broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kbroker.config.judgement import without_secrets
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.ports import free_port

PREFIX = "listener.name.sasl_plaintext"
WAIT_SECONDS = 60


def module(**users: str) -> str:
    each = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {each};"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    plain, sasl = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{PREFIX}.plain.sasl.jaas.config": module(alice="alice-secret"),
    }
    made = BrokerProcess(tmp_path / "broker", settings, port=plain)
    made.sasl_port = sasl  # type: ignore[attr-defined]
    made.start()
    try:
        yield made
    finally:
        made.kill()


def change(broker: BrokerProcess, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    edit = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[edit])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_SECONDS)


def is_let_in(broker: BrokerProcess, name: str, password: str, mechanism: str = "PLAIN") -> bool:
    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.sasl_port}",  # type: ignore[attr-defined]
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "log_level": 0,
            "error_cb": errors.append,
        }
    )

    def answered() -> list[bool]:
        """Whether it was let in, once that is known."""
        try:
            return [bool(admin.list_topics(timeout=0.5).brokers)]
        except KafkaException:
            admin.poll(0)
            return [False] if any(each.code() == KafkaError._AUTHENTICATION for each in errors) else []

    return wait_for(answered, f"a word on {name}", seconds=WAIT_SECONDS)[0]


def test_a_login_module_is_changed_without_a_restart(broker: BrokerProcess) -> None:
    """A password that has leaked would open the broker until its next restart."""
    assert is_let_in(broker, "alice", "alice-secret")
    change(broker, f"{PREFIX}.plain.sasl.jaas.config", module(bob="bob-secret"))
    assert not is_let_in(broker, "alice", "alice-secret")
    assert is_let_in(broker, "bob", "bob-secret")
    for rubbish in ("rubbish", "org.apache.kafka.common.security.scram.ScramLoginModule required;"):
        with pytest.raises(KafkaException, match=r"(?i)login module"):
            change(broker, f"{PREFIX}.plain.sasl.jaas.config", rubbish)
    assert is_let_in(broker, "bob", "bob-secret")
    broker.restart()
    assert is_let_in(broker, "bob", "bob-secret")
    assert not is_let_in(broker, "alice", "alice-secret")
    assert "changed the settings of broker 1 to" in broker.output()
    assert "bob-secret" not in broker.output()


def test_mechanisms_come_without_a_restart(broker: BrokerProcess) -> None:
    """Clients could not move from one mechanism to another while the broker serves."""
    with pytest.raises(KafkaException, match="RUBBISH"):
        change(broker, f"{PREFIX}.sasl.enabled.mechanisms", "PLAIN,RUBBISH")
    change(broker, f"{PREFIX}.sasl.enabled.mechanisms", "SCRAM-SHA-256")
    assert not is_let_in(broker, "alice", "alice-secret")
    change(broker, f"{PREFIX}.sasl.enabled.mechanisms", "SCRAM-SHA-256,PLAIN")
    assert is_let_in(broker, "alice", "alice-secret")


def test_a_changed_setting_is_logged_without_its_secret() -> None:
    """Whoever reads the log would have the keys of the broker."""
    shown = without_secrets({f"{PREFIX}.plain.sasl.jaas.config": "x", "log.cleaner.threads": "2", "unknown": "y"})
    assert shown == {f"{PREFIX}.plain.sasl.jaas.config": "[hidden]", "log.cleaner.threads": "2", "unknown": "y"}
