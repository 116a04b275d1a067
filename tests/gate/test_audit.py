"""The audit log: what is noted of who was refused or allowed what, against what Apache Kafka noted.

Also of `kbroker.security.acl.audit`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers.dispatch import broker_rows
from kbroker.protocol.api import ApiKey
from kbroker.security.acl import audit
from tests.gate.guarded_broker import GuardedBroker
from tests.gate.refused_world import SETTINGS, answers_of, recorded_of_served
from tests.scenarios.session import Session
from tests.security.acl.acl_requests import EVERYTHING, rule

KAFKAS: list[str] = json.loads((Path(__file__).parent / "vectors" / "kafka-4.3.1-audit.json").read_text())
# Kafka asks for two rights to a topic that is not there; kbroker says what one of them is enough for.
ASKED_MORE = ("request = DeleteTopics", "request = OffsetDelete")


class Notes(logging.Handler):
    """What is noted."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))

    def of(self, level: int) -> list[str]:
        return [line for number, line in self.lines if number == level]


@pytest.fixture(name="notes")
def _notes() -> Iterator[Notes]:
    notes = Notes()
    before = audit.logger.level
    audit.logger.addHandler(notes)
    audit.logger.setLevel(logging.INFO)
    yield notes
    audit.logger.removeHandler(notes)
    audit.logger.setLevel(before)


def test_what_is_refused_is_noted_as_by_kafka(tmp_path: Path, notes: Notes) -> None:
    """Whoever looks for an intruder would find half of it, or be drowned in what no client has asked for."""
    broker = GuardedBroker(tmp_path, SETTINGS, by_settings=True)
    broker.start()
    try:
        answers_of(broker.port, recorded_of_served())
    finally:
        broker.stop()
    noted = {line for line in notes.of(logging.INFO) if " is Denied " in line}
    apis = {ApiKey(row.api_key).message_name for row in broker_rows()}
    kafkas = {line for line in KAFKAS if line.partition(" for request = ")[2].split()[0] in apis}
    assert noted <= kafkas
    missing = kafkas - noted
    assert len(missing) == 2 and all("secret-missing" in line for line in missing)
    assert {each for line in missing for each in ASKED_MORE if each in line} == set(ASKED_MORE)
    assert not notes.of(logging.DEBUG)


def test_denials_are_counted_by_what_was_asked_for(tmp_path: Path) -> None:
    """An alert could not tell a client with a wrong rule from an attack, or would go off at every client that lists the
    topics and may not see all of them."""
    broker = GuardedBroker(tmp_path, SETTINGS, by_settings=True)
    broker.start()
    session = Session(broker.port)
    try:
        session.create("u")
        session.quietly("CreateAcls", 3, creations=[rule(resource_name="u"), rule(resource_name="u", operation=4)])
        for _ in range(3):
            session.quietly("Metadata", 9, topics=[{"name": "u"}], allow_auto_topic_creation=False)
        # Not asked for: a topic among all that may not be shown.
        seen = session.quietly("Metadata", 9, topics=None, include_topic_authorized_operations=True)
        assert "u" not in {topic.name for topic in seen.topics}
        values = broker._broker._security_figures()
        assert values["kbroker_authorization_denied"] == {("topic", "describe"): 3.0}
        assert values["kbroker_acls"] == {(): 2.0}
    finally:
        session.close()
        broker.stop()


def test_changes_of_rules_are_always_noted(tmp_path: Path, notes: Notes) -> None:
    """Nobody could tell who has let somebody in."""
    broker = GuardedBroker(tmp_path, {**SETTINGS, "super.users": "User:ANONYMOUS"}, by_settings=True)
    broker.start()
    session = Session(broker.port)
    try:
        session.quietly("CreateAcls", 3, creations=[rule(), rule(), rule(resource_name="")])
        session.quietly("DeleteAcls", 3, filters=[EVERYTHING, EVERYTHING])
    finally:
        session.close()
        broker.stop()
    acl = (
        "StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:alice, host=*, "
        "operation=READ, permissionType=ALLOW]"
    )
    who = "Principal = User:ANONYMOUS from host = 127.0.0.1"
    assert notes.of(logging.INFO) == [f"{who} added {acl}", f"{who} deleted {acl}"]


def test_everything_is_noted_from_the_moment_that_it_is_asked_for(tmp_path: Path, notes: Notes) -> None:
    """What is served from its bytes would be left out, or the log not be switched without a restart."""
    broker = GuardedBroker(tmp_path, {**SETTINGS, "super.users": "User:ANONYMOUS"}, by_settings=True)
    broker.start()
    session = Session(broker.port)
    try:
        session.create("t")
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        fetch = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}

        def noted() -> list[str]:
            notes.lines.clear()
            for _ in range(2):
                session.quietly("Fetch", 12, topics=[{"topic": "t", "partitions": [row]}], **fetch)
            return notes.of(logging.DEBUG)

        def switch(level: str, operation: int) -> None:
            config = {"name": audit.KAFKAS_NAME, "value": level, "config_operation": operation}
            resource = {"resource_type": 8, "resource_name": "1", "configs": [config]}
            done = session.quietly("IncrementalAlterConfigs", 1, resources=[resource]).responses[0]
            assert done.error_code == 0, done.error_message

        assert noted() == []
        switch("DEBUG", 0)
        line = (
            "Principal = User:ANONYMOUS is Allowed operation = READ from host = 127.0.0.1 on resource = "
            "Topic:LITERAL:t for request = Fetch based on rule SuperUser"
        )
        assert noted() == [line, line]
        switch("INFO", 0)
        assert noted() == []
    finally:
        session.close()
        broker.stop()
