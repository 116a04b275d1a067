"""`kbroker acls` (`kbroker.cli.security.acls`) against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from kbroker.errors import ErrorCode, KafkaError
from kbroker.security.authorizer import Operation, ResourceKind
from tests.gate.guarded_broker import GuardedBroker
from tests.security.acl.acl_requests import SETTINGS

Ask = Callable[..., Any]


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path_factory.mktemp("acls"), SETTINGS, by_settings=True)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(name="ask")
def _ask(broker: GuardedBroker, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*words: str, status: int = 0) -> Any:
        where = ["-b", f"127.0.0.1:{broker.port}"]
        assert run(["acls", *words, *where, "--json"]) == status
        shown = capsys.readouterr()
        return json.loads(shown.out) if status == 0 else shown.err

    return ask


def rows(found: list[dict[str, str]]) -> list[str]:
    return [" ".join(each.values()) for each in found]


def test_acls_are_added_listed_and_removed(ask: Ask) -> None:
    """Rules could not be seen, or not be taken back."""
    words = ("--topic", "t", "--allow-principal", "User:alice", "--operation", "read", "--allow-host", "10.0.0.1")
    rule = "topic t literal User:alice 10.0.0.1 read allow"
    assert rows(ask("add", *words)) == [rule]
    ask("add", "--group", "g", "--resource-pattern-type", "prefixed", "--deny-principal", "User:bob")
    other = "group g prefixed User:bob * all deny"
    assert rows(ask("list")) == [rule, other]
    assert rows(ask("list", "--topic", "t")) == [rule]
    assert rows(ask("list", "--group", "g17", "--resource-pattern-type", "match")) == [other]
    assert rows(ask("list", "--principal", "User:alice", "--principal", "User:x")) == [rule]
    assert rows(ask("remove", *words)) == [rule]
    assert rows(ask("remove", "--group", "g", "--resource-pattern-type", "any")) == [other]
    assert ask("list") == []


def test_what_producers_and_consumers_need_is_added_at_once(ask: Ask) -> None:
    """An administrator would have to know each operation, and forget one."""
    ask("add", "--producer", "--topic", "t", "--transactional-id", "x", "--allow-principal", "User:p", "--idempotent")
    ask("add", "--consumer", "--topic", "t", "--group", "g", "--allow-principal", "User:c")
    assert sorted(rows(ask("list"))) == [
        "cluster kafka-cluster literal User:p * idempotent_write allow",
        "group g literal User:c * read allow",
        "topic t literal User:c * describe allow",
        "topic t literal User:c * read allow",
        "topic t literal User:p * create allow",
        "topic t literal User:p * describe allow",
        "topic t literal User:p * write allow",
        "transactional_id x literal User:p * describe allow",
        "transactional_id x literal User:p * write allow",
    ]
    assert len(ask("remove", "--producer", "--topic", "t", "--allow-principal", "User:p")) == 3
    for resource in (("--topic", "t"), ("--group", "g"), ("--transactional-id", "x"), ("--cluster",)):
        ask("remove", *resource)
    assert ask("list") == []


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("add", "--topic", "t"), 2, "name who is allowed or denied"),
        (("add", "--allow-principal", "User:a"), 2, "name what the rules are about"),
        (("add", "--topic", "t", "--allow-principal", "alice"), 2, "a principal is written User:alice"),
        (("add", "--topic", "t", "--allow-principal", "User:a", "--operation", "raed"), 2, "did you mean READ?"),
        (("add", "--consumer", "--topic", "t", "--allow-principal", "User:a"), 2, "--consumer needs a --group"),
        (("add", "--producer", "--group", "g", "--allow-principal", "User:a"), 2, "need a --topic"),
        (("add", "--idempotent", "--topic", "t", "--allow-principal", "User:a"), 2, "goes with --producer"),
        (("add", "--producer", "--topic", "t", "--operation", "read", "--allow-principal", "User:a"), 2, "leave"),
        (("add", "--topic", "", "--allow-principal", "User:a"), 1, "INVALID_REQUEST: topic : Invalid empty resource"),
        (("remove",), 2, "name what the rules are about"),
    ],
)
def test_what_makes_no_sense_is_told_in_words(ask: Ask, words: tuple[str, ...], status: int, told: str) -> None:
    """A slip would make a rule that nobody meant."""
    assert told in ask(*words, status=status)


def test_a_broker_without_an_authorizer_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An administrator would take the rules for being in force."""
    broker = GuardedBroker(tmp_path, {}, by_settings=True)
    broker.start()
    try:
        where = ["-b", f"127.0.0.1:{broker.port}"]
        assert run(["acls", "add", "--topic", "t", "--allow-principal", "User:a", *where]) == 1
        said = capsys.readouterr().err
        assert "SECURITY_DISABLED: topic t: No Authorizer is configured: set authorizer.class.name at every" in said
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("words", "operation"),
    [
        (("acls", "list"), "DESCRIBE"),
        (("users", "list"), "DESCRIBE"),
        (("acls", "remove", "--topic", "t"), "ALTER"),
        (("quotas", "list"), "DESCRIBE_CONFIGS"),
    ],
    ids=["acls list", "users list", "acls remove", "quotas list"],
)
def test_a_missing_right_is_named(
    guarded: GuardedBroker, words: tuple[str, ...], operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reader of "Cluster authorization failed." would not know which ACL to ask for."""
    asked = []

    def refuse(_host: str, wanted: Operation, kind: ResourceKind, _name: str) -> bool:
        asked.append((wanted, kind))
        return kind is not ResourceKind.CLUSTER

    guarded.change(refuse)
    assert run([*words, "-b", f"127.0.0.1:{guarded.port}"]) == 1
    said = capsys.readouterr().err
    assert f"CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed: this needs {operation} on the cluster" in said
    assert (Operation[operation], ResourceKind.CLUSTER) in asked


def test_a_missing_right_on_a_topic_is_named(guarded: GuardedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The same of topics that are to be made or deleted."""
    where = ["-b", f"127.0.0.1:{guarded.port}"]
    guarded.change(lambda *_: True)
    assert run(["topics", "create", "t", *where]) == 0
    guarded.change(lambda _host, wanted, _kind, _name: wanted not in (Operation.CREATE, Operation.DELETE))
    capsys.readouterr()
    for word, name, operation in (("create", "u", "CREATE"), ("delete", "t", "DELETE")):
        assert run(["topics", word, name, *where]) == 1
        said = capsys.readouterr().err
        assert "TOPIC_AUTHORIZATION_FAILED: " in said
        assert f"uthorization failed: this needs {operation} on the topic or on the cluster" in said


@pytest.mark.parametrize(
    "words", [("quotas", "set", "--user", "u", "request_percentage=5"), ("settings", "set", "log.retention.ms=1")]
)
def test_no_refusal_shows_a_python_value(
    guarded: GuardedBroker, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that says nothing but a code would be shown with "None"."""
    silent = KafkaError.of(ErrorCode.POLICY_VIOLATION)

    def refuse(procedure: Coroutine[object, None, object]) -> None:
        procedure.close()
        raise silent

    guarded.change(lambda *_: True)
    monkeypatch.setattr("kbroker.client.admin.run_to_end", refuse)
    assert run([*words, "-b", f"127.0.0.1:{guarded.port}"]) == 1
    said = capsys.readouterr().err
    assert "POLICY_VIOLATION" in said and "None" not in said


@pytest.fixture(scope="module", name="guarded")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path_factory.mktemp("guarded"), {})
    broker.start()
    yield broker
    broker.stop()
