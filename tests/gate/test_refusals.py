"""Every API before an authorizer: refusals with Kafka's codes, and no name that its client may not see.

Also of `kbroker.gate.access`, `kbroker.handlers.security.authorized_operations`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.gate.gate import Gate
from kbroker.errors import ErrorCode
from kbroker.handlers.dispatch import broker_rows, member_rows
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message
from kbroker.security.authorizer import ResourceKind
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.gate.guarded_broker import GuardedBroker, everything, no_secrets
from tests.gate.refused_requests import BOTH, FREE, ROWS, SECRET, WITHOUT_RIGHTS
from tests.gate.refused_versions import OF_SECURITY
from tests.gate.refused_world import (
    BROKER_SETTINGS,
    OTHER_ADDRESS,
    SETTINGS,
    answers_of,
    ask,
    make,
    recorded,
    recorded_of_served,
)
from tests.handlers.admin_broker import AdminBroker, Context
from tests.scenarios.session import Session
from tests.scenarios.wire import Wire
from tests.unbroken import finished

RECORDED = recorded_of_served()


@pytest.fixture(scope="module", name="guarded")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path_factory.mktemp("guarded"), BROKER_SETTINGS)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module", name="answers")
def _answers(guarded: GuardedBroker) -> dict[str, Any]:
    session = Session(guarded.port)
    try:
        ids = make(session)
        guarded.change(no_secrets)
        return ask(session, ids, RECORDED)
    finally:
        session.close()


@pytest.fixture(scope="module", name="answers_by_acls")
def _answers_by_acls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    broker = GuardedBroker(tmp_path_factory.mktemp("by-acls"), SETTINGS, by_settings=True)
    broker.start()
    try:
        return answers_of(broker.port, RECORDED)
    finally:
        broker.stop()


NUMBERED = re.compile(r"topic-id-[3-9]")
"""An internal topic's id, numbered by when it was first seen."""


def as_kafka_says(name: str, recorded: Any) -> Any:
    """Kafka's answer, but for what differs on purpose."""
    if isinstance(recorded, dict):
        if name.startswith("AlterShareGroupOffsets") and recorded.get("topic_name") == SECRET:
            # Kafka gives the id of a topic that the client may not see.
            recorded = {**recorded, "topic_id": "zero"}
        return {key: as_kafka_says(name, value) for key, value in recorded.items()}
    if isinstance(recorded, list):
        return [as_kafka_says(name, value) for value in recorded]
    if isinstance(recorded, str) and recorded.startswith("Request needs"):
        # With the name of a Java object in it.
        return "Cluster authorization failed."
    return recorded


def in_order(answer: Any) -> Any:
    """The answer with arrays in one order: where ids are left out, sorting by them comes to another one."""
    if isinstance(answer, dict):
        return {key: in_order(value) for key, value in answer.items()}
    if isinstance(answer, str):
        return NUMBERED.sub("topic-id-internal", answer)
    if isinstance(answer, list):
        return sorted((in_order(each) for each in answer), key=lambda each: json.dumps(each, sort_keys=True))
    return answer


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_not_the_clients_is_refused_as_by_kafka(answers: dict[str, Any], name: str) -> None:
    """A client would see or change what is not its own, or not know what it lacks."""
    assert in_order(answers[name]) == in_order(as_kafka_says(name, RECORDED[name]))


@pytest.mark.parametrize("name", RECORDED)
def test_the_same_is_refused_by_the_acls_that_kafka_was_given(answers_by_acls: dict[str, Any], name: str) -> None:
    """What handlers ask could be right, and what rules say to it wrong."""
    assert in_order(answers_by_acls[name]) == in_order(as_kafka_says(name, RECORDED[name]))


def test_every_api_has_a_row() -> None:
    """An API could be added that asks nothing."""
    asked = {row.api for row in (*ROWS, *WITHOUT_RIGHTS, *OF_SECURITY)} | {key.message_name for key in FREE}
    assert {name_of(row) for row in broker_rows()} <= asked
    assert {row.api for row in (*ROWS, *WITHOUT_RIGHTS)} <= {name_of(row) for row in broker_rows()}


def name_of(row: Handler) -> str:
    return ApiKey(row.api_key).message_name


class NoRights(Gate):
    """A gate that nothing passes."""

    def is_authorized(self, operation: int, kind: int, name: str) -> bool:
        return False


OF_BROKERS = {row.api_key for row in broker_rows()}
MEMBER_ROWS = [row for row in member_rows() if row.api_key not in OF_BROKERS]


@pytest.mark.parametrize("row", MEMBER_ROWS, ids=name_of)
def test_what_members_of_a_cluster_ask_needs_a_right_to_it(tmp_path: Path, row: Handler) -> None:
    """Every client could be a controller, or a broker."""
    broker = AdminBroker.start(tmp_path)
    try:
        context: Any = Context(broker.services, row.api_key, row.max_version, broker.connection, gate=NoRights())
        answer: Any = finished(row.handle(context, request_message(row.api_key)()))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    finally:
        broker.stop()


def test_every_row_is_on_record(answers: dict[str, Any]) -> None:
    """A row would be compared with nothing."""
    assert set(answers) == set(RECORDED)
    asked = {name.removesuffix(", without rights") for name in recorded()}
    assert {row.name for row in (*ROWS, *WITHOUT_RIGHTS, *OF_SECURITY)} <= asked


def test_no_answer_names_what_its_client_does_not_know_of() -> None:
    """The table would hold answers that tell a client of topics, groups or transactions that it may not see."""
    listing = ("Metadata v1 all", "Metadata v9 all", "DescribeTopicPartitions v0 all", "ListGroups", "ListTransactions")
    listed = [name for name in RECORDED if name.startswith(listing)]
    assert len(listed) > 6
    assert not [name for name in listed if SECRET in json.dumps(RECORDED[name])]


def test_two_clients_get_their_own_answers_of_what_is_remembered(guarded: GuardedBroker) -> None:
    """The second would read from the memory of answers, or of metadata, what the first may see."""
    guarded.change(no_secrets)
    first, second = Wire(guarded.port), Wire(guarded.port, source=OTHER_ADDRESS)
    request = {"topics": None, "include_topic_authorized_operations": True}

    def seen(wire: Wire) -> dict[str, int]:
        topics = wire.ask("Metadata", 9, request).topics
        return {topic.name: topic.topic_authorized_operations for topic in topics if not topic.is_internal}

    try:
        for _ in range(2):
            assert (seen(first), seen(second)) == ({"open": 3576}, {})
        # What a client may do to a topic is part of its answer, too.
        guarded.change(lambda host, operation, kind, name: host != OTHER_ADDRESS or operation.name == "DESCRIBE")
        for _ in range(2):
            assert (seen(first)["open"], seen(second)["open"]) == (3576, 256)
        guarded.change(everything)
        assert seen(first) == seen(second)
    finally:
        first.close()
        second.close()


def test_rights_come_before_an_operation_that_kafka_has_not(guarded: GuardedBroker) -> None:
    """A client would learn that a topic which it may not change takes no such operation; Kafka's says 29 to it."""
    guarded.change(no_secrets)
    wire = Wire(guarded.port)
    codes = {}
    try:
        for name in BOTH:
            config = {"name": "retention.ms", "config_operation": 127, "value": "1"}
            resource = {"resource_type": ResourceKind.TOPIC, "resource_name": name, "configs": [config]}
            answer = wire.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": True})
            codes[name] = answer.responses[0].error_code
    finally:
        wire.close()
    assert codes == {"open": ErrorCode.UNKNOWN_SERVER_ERROR, SECRET: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_session_of_fetches_is_asked_about_each_time(guarded: GuardedBroker) -> None:
    """A consumer would read on after its right was taken away, or not read after it was given one."""
    guarded.change(no_secrets)
    wire = Wire(guarded.port)
    try:
        rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        topics = [{"topic": name, "partitions": rows} for name in ("open", "secret")]
        first = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": 0}
        begun = wire.ask("Fetch", 12, {**first, "topics": topics})
        assert begun.session_id
        again = {**first, "session_id": begun.session_id, "topics": []}

        def codes(epoch: int) -> dict[str, int]:
            answer = wire.ask("Fetch", 12, {**again, "session_epoch": epoch})
            assert answer.error_code == 0
            return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}

        assert codes(1) == {"open": 0, "secret": 29}
        guarded.change(lambda host, operation, kind, name: not name.startswith("open"))
        assert codes(2) == {"open": 29, "secret": 0}
    finally:
        guarded.change(no_secrets)
        wire.close()


def test_a_regular_expression_matches_what_its_member_may_describe(guarded: GuardedBroker) -> None:
    """A member would be given the partitions of a topic that it may not see."""
    guarded.change(no_secrets)
    wire = Wire(guarded.port)
    member = {"group_id": "by-regex", "member_id": "CCCCCCCCCCCCCCCCCCCCCA"}
    join = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    try:
        wire.ask("ConsumerGroupHeartbeat", 1, {**member, **join, "subscribed_topic_regex": "(open|secret).*"})

        def assigned() -> list[Any]:
            described = wire.ask("ConsumerGroupDescribe", 1, {"group_ids": ["by-regex"]}).groups[0]
            assert described.error_code == 0
            wire.ask("ConsumerGroupHeartbeat", 1, {**member, "member_epoch": described.members[0].member_epoch})
            return [row.topic_name for row in described.members[0].target_assignment.topic_partitions]

        assert wait_for(assigned, "a target assignment") == ["open"]
    finally:
        wire.ask("ConsumerGroupHeartbeat", 1, {**member, "member_epoch": -1})
        wire.close()


def test_a_heartbeat_from_memory_is_refused_when_its_right_is_gone(guarded: GuardedBroker) -> None:
    """A member whose right was taken away would stay in the group for as long as it repeats itself."""
    guarded.change(no_secrets)
    wire = Wire(guarded.port)
    member = {"group_id": "repeated", "member_id": "DDDDDDDDDDDDDDDDDDDDDA"}
    join = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": []}
    try:
        epoch = wire.ask("ConsumerGroupHeartbeat", 1, {**member, **join}).member_epoch

        def code() -> int:
            return int(wire.ask("ConsumerGroupHeartbeat", 1, {**member, "member_epoch": epoch}).error_code)

        assert [code() for _ in range(4)] == [0, 0, 0, 0]
        guarded.change(lambda host, operation, kind, name: name != "repeated")
        assert code() == ErrorCode.GROUP_AUTHORIZATION_FAILED
        guarded.change(no_secrets)
        assert code() == 0
    finally:
        wire.ask("ConsumerGroupHeartbeat", 1, {**member, "member_epoch": -1})
        wire.close()


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_refuses_as_on_record(tmp_path: Path) -> None:
    """The answers that kbroker is held to would not be Kafka's."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    try:
        kafka.start()
        found = answers_of(kafka.port)
    finally:
        kafka.stop()
    assert found == recorded()
