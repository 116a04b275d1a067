"""Kafka's own tools and clients of Java against a broker whose clients log in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.java_tools import TOOLS
from tests.compat.tooling import run_java
from tests.security.threaded_broker import ThreadedBroker

pytestmark = [pytest.mark.compat]

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path_factory.mktemp("tools"))
    broker.start()
    yield broker
    broker.stop()


def config(folder: Path, mechanism: str, name: str, password: str, more: str = "") -> str:
    """A file for `--command-config`."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    path = folder / f"{mechanism}-{len(list(folder.iterdir()))}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{name}" password="{password}"{more};\n'
    )
    return str(path)


def tool(broker: ThreadedBroker, java_class: str, *args: str, stdin: bytes = b"", status: int = 0) -> str:
    """What a tool says, which has to end so."""
    done = run_java(java_class, "--bootstrap-server", broker.bootstrap, *args, stdin=stdin)
    assert (done.returncode != 0) == (status != 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def writes_and_reads(broker: ThreadedBroker, topic: str, file: str) -> None:
    """Kafka's console tools do, by the settings of a file."""
    lines = b"one\ntwo\nthree\n"
    tool(broker, f"{TOOLS}.ConsoleProducer", "--topic", topic, "--command-config", file, stdin=lines)
    words = ("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000")
    read = tool(broker, f"{TOOLS}.consumer.ConsoleConsumer", *words, "--command-config", file)
    assert read.startswith(lines.decode())


def test_kafka_configs_adds_users_who_then_log_in(broker: ThreadedBroker, tmp_path: Path) -> None:
    """Administrators could not use the tool that they know, or its users could not log in."""
    admin = config(tmp_path, "PLAIN", "admin", "admin-pw")
    user = ("--entity-type", "users", "--entity-name", "eve")
    configs = "kafka.admin.ConfigCommand"
    # Kafka takes one of a user's mechanisms with each request.
    for added in ("SCRAM-SHA-256=[iterations=8192,password=eve-pw]", "SCRAM-SHA-512=[password=eve-pw]"):
        tool(broker, configs, "--command-config", admin, "--alter", *user, "--add-config", added)
    shown = tool(broker, configs, "--command-config", admin, "--describe", *user)
    assert "SCRAM-SHA-256=iterations=8192" in shown and "SCRAM-SHA-512=iterations=4096" in shown
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        writes_and_reads(broker, mechanism.lower(), config(tmp_path, mechanism, "eve", "eve-pw"))
    tool(broker, configs, "--command-config", admin, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    shown = tool(broker, configs, "--command-config", admin, "--describe", *user)
    assert "SCRAM-SHA-256" in shown and "SCRAM-SHA-512" not in shown
    gone = config(tmp_path, "SCRAM-SHA-512", "eve", "eve-pw")
    refused = tool(broker, f"{TOOLS}.TopicCommand", "--list", "--command-config", gone, status=1)
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in refused


def test_kafka_delegation_tokens_makes_tokens_that_log_in(broker: ThreadedBroker, tmp_path: Path) -> None:
    """Jobs of Spark, Flink and others, which get tokens in the place of passwords, could not run."""
    admin = config(tmp_path, "SCRAM-SHA-512", "admin", "admin-pw")
    tokens = f"{TOOLS}.DelegationTokenCommand"
    words = ("--max-life-time-period", "-1", "--renewer-principal", "User:sam")
    made = tool(broker, tokens, "--command-config", admin, "--create", *words)
    row = re.search(r"^(\S{22})\s+(\S{88})\s+User:admin", made, re.MULTILINE)
    assert row is not None, made
    token_id, hmac = row.groups()
    file = config(tmp_path, "SCRAM-SHA-256", token_id, hmac, ' tokenauth="true"')
    writes_and_reads(broker, "by-token", file)
    renewed = tool(broker, tokens, "--command-config", admin, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    assert token_id in tool(broker, tokens, "--command-config", admin, "--describe", "--owner-principal", "User:admin")
    # A token makes no tokens.
    refused = tool(broker, tokens, "--command-config", file, "--create", "--max-life-time-period", "-1", status=1)
    assert "Delegation Token requests are not allowed" in refused
    tool(broker, tokens, "--command-config", admin, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    tool(broker, f"{TOOLS}.TopicCommand", "--list", "--command-config", file, status=1)


def test_console_tools_log_in_by_plain(broker: ThreadedBroker, tmp_path: Path) -> None:
    """Java's clients could not log in by what most begin with."""
    writes_and_reads(broker, "plain", config(tmp_path, "PLAIN", "alice", "alice-pw"))
