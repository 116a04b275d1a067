"""Java's clients with bearer tokens (OAUTHBEARER): transactions, and groups of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.java_tools import TOOLS
from tests.compat.tooling import run_java
from tests.security.threaded_broker import ThreadedBroker

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]
COUNT = 200
BEARER = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path_factory.mktemp("bearer"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(name="settings")
def _settings(broker: ThreadedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for --command-config, with a token in a file beside it."""
    token = tmp_path / "token"
    token.write_text(broker.token("sam"))
    # Java reads tokens from nowhere else.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}")
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={BEARER}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={BEARER}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    return file


def tool(broker: ThreadedBroker, java_class: str, settings: Path, *words: str) -> str:
    where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(settings))
    done = run_java(f"{TOOLS}.{java_class}", *where, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produced(broker: ThreadedBroker, settings: Path, topic: str) -> None:
    """Transactions of a producer."""
    words = ("--topic", topic, "--num-records", str(COUNT), "--record-size", "20", "--throughput", "1000")
    said = tool(broker, "ProducerPerformance", settings, *words, "--transaction-duration-ms", "50")
    assert f"{COUNT} records sent" in said


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_are_produced_and_read_in_groups(broker: ThreadedBroker, settings: Path, protocol: str) -> None:
    """Users of Java could not use the broker with their identity provider's tokens."""
    topic = f"java-{protocol}"
    produced(broker, settings, topic)
    own = f"group.protocol={protocol}\nisolation.level=read_committed\nauto.offset.reset=earliest\n"
    settings.write_text(settings.read_text() + own)
    words = ("--topic", topic, "--group", topic, "--max-messages", str(COUNT), "--timeout-ms", "60000")
    assert len(tool(broker, "consumer.ConsoleConsumer", settings, *words).splitlines()) == COUNT
    assert broker.logins()["OAUTHBEARER"] >= 2


def test_records_are_shared_in_a_group(broker: ThreadedBroker, settings: Path) -> None:
    """Share groups would be for clients with passwords alone."""
    words = ("--group", "sharing", "--alter", "--add-config", "share.auto.offset.reset=earliest")
    done = run_java(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", broker.bootstrap, "--command-config", str(settings), *words),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    produced(broker, settings, "shared")
    words = ("--topic", "shared", "--group", "sharing", "--max-messages", str(COUNT), "--timeout-ms", "60000")
    assert len(tool(broker, "consumer.ConsoleShareConsumer", settings, *words).splitlines()) == COUNT


def test_a_token_of_another_issuer_is_refused(broker: ThreadedBroker, settings: Path, tmp_path: Path) -> None:
    """Anybody could sign tokens for anybody."""
    head, body, signature = (tmp_path / "token").read_text().split(".")
    (tmp_path / "token").write_text(f"{head}.{body}.{signature[::-1]}")
    where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(settings), "--list")
    done = run_java(f"{TOOLS}.TopicCommand", *where)
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stdout + done.stderr
