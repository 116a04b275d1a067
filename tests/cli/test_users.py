"""`kbroker users`, `kbroker tokens` and `kbroker format --add-scram`, against a broker whose clients log in.

Also of `kbroker.cli.security.users`, `kbroker.cli.security.tokens`, `kbroker.cli.security.secret_input`.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.security_image import ScramKey
from kbroker.security.scram import ScramMechanism, credential_of_password, salted_password
from kbroker.security.scram_arguments import ScramArgumentError, parse_scram_arguments
from tests.gate.guarded_broker import GuardedBroker
from tests.ports import free_port

Ask = Callable[..., Any]
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
FIRST = 'SCRAM-SHA-512=[name=root,password="pw, of root"]'


@pytest.fixture(scope="module", name="secure_port")
def _secure_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, port = tmp_path_factory.mktemp("users"), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.2:{free_port()},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "delegation.token.secret.key": "secret",
    }
    assert run(["format", "--override", f"log.dirs={folder}", "--add-scram", FIRST]) == 0
    broker = GuardedBroker(folder, settings)
    broker.start()
    yield port
    broker.stop()


@pytest.fixture(name="ask")
def _ask(secure_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    def ask(
        *words: str, typed: str = "", login: str = "root", status: int = 0, mechanism: str = "SCRAM-SHA-512"
    ) -> Any:
        file = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        name, _, password = login.partition(":")
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{name}" password="{password or "pw, of root"}";\n'
        )
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        where = ["-b", f"127.0.0.1:{secure_port}", "--command-config", str(file), "--timeout", "60"]
        assert run([*words, *where, "--json"]) == status
        shown = capsys.readouterr()
        assert "of root" not in shown.out + shown.err
        return json.loads(shown.out) if status == 0 else shown.err

    return ask


def test_the_first_user_of_a_formatted_broker_adds_others_who_log_in(ask: Ask, tmp_path: Path) -> None:
    """Nobody could be the first to log in, or a password would lie in the history of a shell."""
    password = tmp_path / "password"
    password.write_text("pw of sam\n")
    ask("users", "add", "sam", "--password-file", str(password), "--iterations", "5000")
    ask("users", "add", "tom", "--mechanism", "scram-sha-256", "--mechanism", "SCRAM-SHA-512", typed="pw of tom\n")
    rows = [[row["user"], row["mechanism"], row["iterations"]] for row in ask("users", "list", login="sam:pw of sam")]
    assert rows == [
        ["root", "SCRAM-SHA-512", 4096],
        ["sam", "SCRAM-SHA-512", 5000],
        ["tom", "SCRAM-SHA-256", 4096],
        ["tom", "SCRAM-SHA-512", 4096],
    ]
    ask("users", "list", login="tom:pw of tom", mechanism="SCRAM-SHA-256")
    assert "Authentication failed" in ask("users", "list", login="tom:wrong", status=1)
    assert ask("users", "remove", "tom", "--mechanism", "SCRAM-SHA-256")["mechanisms"] == ["SCRAM-SHA-256"]
    assert ask("users", "remove", "tom")["mechanisms"] == ["SCRAM-SHA-512"]
    assert "Authentication failed" in ask("users", "list", login="tom:pw of tom", status=1)
    assert "there is no user tom" in ask("users", "remove", "tom", status=1)
    assert "RESOURCE_NOT_FOUND" in ask("users", "remove", "sam", "--mechanism", "SCRAM-SHA-256", status=1)
    assert "it is empty" in ask("users", "add", "eve", typed="\n", status=1)


def test_a_token_logs_its_owner_in_until_it_is_made_to_end(ask: Ask) -> None:
    """A job could not be given less than a password."""
    made = ask("tokens", "create", "--renewer", "User:sam", "--max-life-hours", "48")
    assert made["owner"] == "User:root" and len(base64.b64decode(made["hmac"])) == 64
    (row,) = ask("tokens", "list")
    assert (row["token_id"], row["renewers"]) == (made["token_id"], ["User:sam"])
    assert "hmac" not in row
    assert ask("tokens", "list", "--owner", "User:nobody") == []
    renewed = ask("tokens", "renew", "--hours", "1", typed=made["hmac"])
    assert renewed["expires"] < made["expires"]
    assert "DELEGATION_TOKEN_NOT_FOUND" in ask("tokens", "renew", typed="AAAA\n", status=1)
    assert "no base64" in ask("tokens", "expire", typed="!\n", status=1)
    ask("tokens", "expire", typed=made["hmac"])
    assert ask("tokens", "list") == []


def test_a_formatted_store_has_the_users(tmp_path: Path) -> None:
    """A user would be another than with Kafka's storage tool."""
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, b"pw", b"salt", 5000)
    given = f"SCRAM-SHA-256=[name=al,salt=c2FsdA==,saltedpassword={base64.b64encode(salted).decode()},iterations=5000]"
    assert run(["format", "--override", f"log.dirs={tmp_path}", "-S", FIRST, "-S", given]) == 0
    store = LocalStore.open(tmp_path / FILE_NAME)
    scram = store.security().scram
    store.close()
    assert set(scram) == {ScramKey("root", 2), ScramKey("al", 1)}
    assert scram[ScramKey("al", 1)] == credential_of_password(ScramMechanism.SCRAM_SHA_256, "pw", 5000, b"salt")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("alice:hidden", "MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=hidden]", "none of"),
        ("SCRAM-SHA-256=[password=hidden]", "no name"),
        ("SCRAM-SHA-256=[name=a]", "either password or"),
        ("SCRAM-SHA-256=[name=a,password=]", "is empty"),
        ("SCRAM-SHA-256=[name=a,password=hidden,saltedpassword=AAAA]", "either password or"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=4095]", "iterations are from"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=x]", "are a number"),
        ("SCRAM-SHA-256=[name=a,password=hidden,salt=!]", "base64"),
        ("SCRAM-SHA-256=[name=a,password=hidden,more=1]", "each once"),
        ("SCRAM-SHA-256=[name=a,name=b,password=hidden]", "each once"),
    ],
)
def test_an_argument_that_makes_no_user_is_refused_without_its_words(argument: str, reason: str) -> None:
    """A password would be shown, or nobody be there to log in."""
    with pytest.raises(ScramArgumentError, match=reason) as caught:
        parse_scram_arguments([argument])
    assert "hidden" not in str(caught.value)


def test_the_same_user_twice_is_refused() -> None:
    """One of two passwords would count, and nobody would know which."""
    with pytest.raises(ScramArgumentError, match="twice"):
        parse_scram_arguments(["SCRAM-SHA-256=[name=a,password=x]", "SCRAM-SHA-256=[name=a,password=y]"])
