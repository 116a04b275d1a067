"""`kafka-acls` and real clients against a broker with an authorizer, and the same against Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.brokers import BrokerProcess, broker_kind
from tests.compat.java_tools import TOOLS, refused, tool
from tests.compat.waiting import wait_for
from tests.scenarios.wire import Wire
from tests.security.acl.acl_requests import rule

ACLS = f"{TOOLS}.AclCommand"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_RULE = re.compile(r"\(principal=(.*?), host=(.*?), operation=(.*?), permissionType=(.*?)\)")


def listed(text: str) -> set[tuple[str, ...]]:
    """Resource, pattern and rule of each line of a listing."""
    found: set[tuple[str, ...]] = set()
    resource: tuple[str, ...] = ()
    for line in text.splitlines():
        named = re.search(r"resourceType=(\w+), name=(.*?), patternType=(\w+)\)", line)
        if named is not None:
            resource = named.groups()
        found |= {(*resource, *each) for each in _RULE.findall(line)}
    return found


@pytest.fixture(name="guarded")
def _guarded(target: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = broker_kind(target)(tmp_path / "broker", SETTINGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def test_kafka_acls_adds_lists_and_removes(guarded: BrokerProcess) -> None:
    """Administrators could not use the tool that they know."""
    tool(guarded, ACLS, "--add", "--producer", "--topic", "t", "--transactional-id", "x", "--allow-principal", "User:p")
    tool(guarded, ACLS, "--add", "--consumer", "--topic", "t", "--group", "g", "--allow-principal", "User:c")
    words = ("--topic", "secret", "--resource-pattern-type", "prefixed", "--deny-principal", "User:*")
    tool(guarded, ACLS, "--add", *words, "--deny-host", "10.0.0.1", "--operation", "Read")

    def everything() -> set[tuple[str, ...]]:
        return listed(tool(guarded, ACLS, "--list"))

    denied = ("TOPIC", "secret", "PREFIXED", "User:*", "10.0.0.1", "READ", "DENY")
    wait_for(lambda: denied in everything(), "the rules to be in force")
    assert everything() == {
        *(("TOPIC", "t", "LITERAL", "User:p", "*", each, "ALLOW") for each in ("WRITE", "DESCRIBE", "CREATE")),
        *(("TRANSACTIONAL_ID", "x", "LITERAL", "User:p", "*", each, "ALLOW") for each in ("WRITE", "DESCRIBE")),
        *(("TOPIC", "t", "LITERAL", "User:c", "*", each, "ALLOW") for each in ("READ", "DESCRIBE")),
        ("GROUP", "g", "LITERAL", "User:c", "*", "READ", "ALLOW"),
        denied,
    }
    matching = listed(tool(guarded, ACLS, "--list", "--topic", "secrets", "--resource-pattern-type", "match"))
    assert matching == {denied}
    tool(guarded, ACLS, "--remove", "--force", *words, "--deny-host", "10.0.0.1", "--operation", "Read")
    tool(guarded, ACLS, "--remove", "--force", "--topic", "t")
    wait_for(lambda: not {each for each in everything() if each[0] == "TOPIC"}, "the rules to be gone")
    assert len(everything()) == 3


def test_real_clients_are_told_what_they_may_not(guarded: BrokerProcess) -> None:
    """A client would hang, or try for ever, where it lacks a right."""
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)]).values():
        future.result(90)
    wire = Wire(guarded.port)
    try:
        own = {"principal": "User:ANONYMOUS", "operation": 2, "permission_type": 2}
        made = wire.ask("CreateAcls", 3, {"creations": [rule(**own), rule(**own, resource_type=3, resource_name="g")]})
        assert [each.error_code for each in made.results] == [0, 0]
    finally:
        wire.close()
    assert produced(guarded, "u") is None
    wait_for(lambda: produced(guarded, "t") == KafkaError.TOPIC_AUTHORIZATION_FAILED, "the rules to be in force")
    assert consumed(guarded, "t", "other") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert consumed(guarded, "u", "g") == KafkaError.GROUP_AUTHORIZATION_FAILED
    said = refused(guarded, f"{TOOLS}.GetOffsetShell", "--topic", "t")
    assert "Could not match any topic-partitions" in said or "TopicAuthorizationException" in said


def produced(broker: BrokerProcess, topic: str) -> Any:
    """The error with which librdkafka's producer gives up; None where it does not."""
    ends: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 60_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _message: ends.append(error))
    producer.flush(90)
    return ends[0] if ends[0] is None else ends[0].code()


def consumed(broker: BrokerProcess, topic: str, group: str) -> Any:
    """The error that librdkafka's consumer comes to."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        for _ in range(200):
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                return message.error().code()
        return None
    except KafkaException as error:
        return error.args[0].code()
    finally:
        consumer.close()
