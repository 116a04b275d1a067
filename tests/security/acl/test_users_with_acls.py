"""Real clients that log in, with the ACLs that they need and without: transactions and groups of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.waiting import wait_for
from tests.security.threaded_broker import USERS, ThreadedBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def login(broker: ThreadedBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "log_level": 0,
    }


def allow(kind: ResourceType, name: str, operation: AclOperation, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path_factory.mktemp("users"), **SETTINGS)
    broker.start()
    try:
        admin = AdminClient(login(broker, "admin"))  # It must live until the answers are there.
        for future in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
            future.result(30)
        yield broker
    finally:
        broker.stop()


@pytest.fixture(name="rules")
def _rules(broker: ThreadedBroker) -> Iterator[Any]:
    admin = AdminClient(login(broker, "admin"))

    def add(*acls: AclBinding) -> None:
        for future in admin.create_acls(list(acls)).values():
            future.result(30)

    yield add
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([everything]).values():
        future.result(30)


def produced(broker: ThreadedBroker, topic: str, **settings: Any) -> int | None:
    """The code of the error that a record comes to; None where it is written."""
    ends: list[Any] = []
    producer = Producer({**login(broker, "alice"), "message.timeout.ms": 60_000, **settings})
    producer.produce(topic, b"v", on_delivery=lambda error, _message: ends.append(error))
    producer.flush(90)
    return None if ends[0] is None else int(ends[0].code())


def consumed(broker: ThreadedBroker, group: str, **settings: Any) -> int | bytes | None:
    """The first record's value, or the code of the first error."""
    consumer = Consumer({**login(broker, "alice"), "group.id": group, "auto.offset.reset": "earliest", **settings})
    try:
        consumer.subscribe(["in"])
        for _ in range(60):
            message = consumer.poll(0.5)
            if message is not None:
                return message.value() if message.error() is None else int(message.error().code())
        return None
    finally:
        consumer.close()


def test_a_producer_needs_a_topic_that_it_may_write(broker: ThreadedBroker, rules: Any) -> None:
    """A client could write anywhere, or an idempotent one nowhere."""
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(broker, "in") == refused
    rules(allow(ResourceType.TOPIC, "in", AclOperation.WRITE))
    assert produced(broker, "in") is None
    assert produced(broker, "in", **{"enable.idempotence": True}) is None
    assert produced(broker, "out") == refused


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_needs_its_topic_and_its_group(broker: ThreadedBroker, rules: Any, protocol: str) -> None:
    """A client could read what is not its own, in the group of somebody else."""
    settings = {"group.protocol": protocol}
    rules(allow(ResourceType.TOPIC, "in", AclOperation.ALL))
    assert produced(broker, "in") is None
    assert consumed(broker, f"mine-{protocol}", **settings) == KafkaError.GROUP_AUTHORIZATION_FAILED
    rules(allow(ResourceType.GROUP, "mine", AclOperation.READ, prefixed=True))
    assert consumed(broker, f"mine-{protocol}", **settings) == b"v"
    assert consumed(broker, "theirs", **settings) == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_transaction_needs_its_id_its_topics_and_its_group(broker: ThreadedBroker, rules: Any) -> None:
    """A client could end the transactions of somebody else, or move the offsets of another group."""
    settings = {**login(broker, "alice"), "transactional.id": "tx"}

    def begun() -> Producer:
        producer = Producer(settings)
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    with pytest.raises(KafkaException) as told:
        begun()
    assert told.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rules(
        allow(ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE),
        allow(ResourceType.TOPIC, "in", AclOperation.ALL),
        allow(ResourceType.GROUP, "mine-tx", AclOperation.READ),
        allow(ResourceType.TOPIC, "out", AclOperation.WRITE),
    )
    assert produced(broker, "in") is None
    consumer = Consumer({**login(broker, "alice"), "group.id": "mine-tx", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["in"])
        assert wait_for(lambda: consumer.poll(0.5), "a record").error() is None
        producer = begun()
        producer.produce("out", b"w")
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        producer.commit_transaction(60)
        committed = consumer.committed(consumer.assignment(), 60)
        assert [each.offset > 0 for each in committed] == [True]
    finally:
        consumer.close()
