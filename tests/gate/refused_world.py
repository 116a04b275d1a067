"""The world of `refused_requests`, made on a broker that still allows everything, and its requests, asked there.

python -m tests.gate.refused_world PORT     record what Apache Kafka on that port answers

Kafka needs `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer` and
`allow.everyone.if.no.acl.found=true`: the rules are made when the world is there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from kbroker.handlers.dispatch import broker_rows
from kbroker.protocol.api import ApiKey
from tests.compat.waiting import wait_for
from tests.gate.refused_requests import (
    BLIND,
    OPEN,
    ROWS,
    SECRET,
    SHOWN,
    WITHOUT_RIGHTS,
    Row,
)
from tests.gate.refused_versions import OF_SECURITY, in_all_versions
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session
from tests.scenarios.wire import Wire

FILE = Path(__file__).parent / "vectors" / "kafka-4.3.1-refusals.json"
BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}
SETTINGS = {
    **BROKER_SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
Ids = dict[str, bytes]
JAVA_REQUEST = re.compile(r"Request Request\(.*\) needs")
HUNG_UP = "connection closed"
DENY, ALLOW, LITERAL, PREFIXED = 2, 3, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS = 2, 5, 9, 10
# Of the first client, and of the one without any rights.
ADDRESS, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"


def make(session: Session) -> Ids:
    """Topics with a record each, groups of every kind, transactions; the topics' ids."""
    ids = {}
    for name in (OPEN, SECRET):
        ids[name] = session.create(name)
        session.fill(name, Batch())
    for group in (OPEN, SECRET):
        session.coordinator(group)
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
        topics = [{"name": name, "partitions": [offset]} for name in (OPEN, SECRET)]
        who = {"generation_id_or_member_epoch": -1, "member_id": ""}
        session.quietly("OffsetCommit", 8, group_id=group, topics=topics, **who)
    _members(session)
    _sharers(session)
    _transactions(session)
    return ids


def _members(session: Session) -> None:
    join = {"member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    topics = {"subscribed_topic_names": [OPEN, SECRET], "topic_partitions": []}
    joined = session.quietly("ConsumerGroupHeartbeat", 1, group_id="members", **join, **topics)
    assert joined.error_code == 0, joined.error_message


def _sharers(session: Session) -> None:
    for group, member in (("sharers", "AAAAAAAAAAAAAAAAAAAAAA"), ("idle", "BBBBBBBBBBBBBBBBBBBBBA")):

        def beat(epoch: int, group: str = group, member: str = member) -> Any:
            names = [OPEN, SECRET] if epoch == 0 else None
            return session.quietly(
                "ShareGroupHeartbeat",
                1,
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                subscribed_topic_names=names,
            )

        def has_all(group: str = group) -> bool:
            beaten = beat(0)
            assigned = beaten.assignment
            return bool(assigned is not None and len(assigned.topic_partitions) == 2)

        wait_for(has_all, f"{group} to be assigned")
        if group == "idle":
            beat(-1)


def _transactions(session: Session) -> None:
    for name in ("mine", SECRET):

        def there(name: str = name) -> Any:
            session.quietly("FindCoordinator", 4, key_type=1, coordinator_keys=[name])
            found = session.quietly("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000)
            return None if found.error_code else found

        begun = wait_for(there, f"{name} to begin")
        session.normal.name("producer", begun.producer_id)
        topics = [{"name": topic, "partitions": [0]} for topic in (OPEN, SECRET)]
        session.quietly(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=topics,
        )


def restrict(session: Session) -> None:
    """Have the broker refuse what is not the client's."""
    kinds = (TOPIC, GROUP, TRANSACTIONAL_ID)
    allow = {"permission_type": ALLOW, "host": ADDRESS, "resource_pattern_type": LITERAL}
    rules = [{**allow, "resource_type": kind, "resource_name": "*", "operation": ALL} for kind in kinds]
    rules.append({**allow, "resource_type": CLUSTER, "resource_name": "kafka-cluster", "operation": CLUSTER_ACTION})
    deny = {"permission_type": DENY, "host": "*", "resource_pattern_type": PREFIXED}
    rules += [{**deny, "resource_type": kind, "resource_name": SECRET, "operation": ALL} for kind in kinds]
    rules.append({**deny, "resource_type": TOPIC, "resource_name": BLIND, "operation": DESCRIBE_CONFIGS})
    rules.append({**deny, "resource_type": TOPIC, "resource_name": SHOWN, "operation": CREATE})
    rules = [{**rule, "principal": "User:ANONYMOUS"} for rule in rules]
    made = session.quietly("CreateAcls", 3, creations=rules)
    assert [result.error_code for result in made.results] == [0] * len(rules)
    wait_for(lambda: session.quietly("DescribeQuorum", 2, topics=[]).error_code == 31, "the rules to be in force")


def questions() -> Iterator[tuple[str, Row, bool]]:
    """Name and row of each question, and whether the second client asks it."""
    for row in in_all_versions((*ROWS, *OF_SECURITY)):
        yield row.name, row, False
    for row in in_all_versions((*WITHOUT_RIGHTS, *OF_SECURITY)):
        yield f"{row.name}, without rights", row, True


def ask(session: Session, ids: Ids, names: Container[str] | None = None) -> dict[str, Any]:
    """The answers to both clients, by the names of the questions.  `names`: of those that are asked."""
    source = ADDRESS
    for name, row, is_second in questions():
        if names is not None and name not in names:
            continue
        hung_up = session.answers and next(reversed(session.answers.values())) == HUNG_UP
        if hung_up or (is_second and source == ADDRESS):
            source = OTHER_ADDRESS if is_second else ADDRESS
            session.wire.close()
            session.wire = Wire(session.port, source=source)
        session.ask(name, row.api, row.version, **_with_ids(row.values, ids))
    return {name: _tidy(answer) for name, answer in session.answers.items()}


def _tidy(value: Any) -> Any:
    """Without the addresses of Java objects in Kafka's words, and the settings of a new topic."""
    if isinstance(value, dict):
        return {key: [] if key == "configs" else _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return JAVA_REQUEST.sub("Request needs", value) if isinstance(value, str) else value


def _with_ids(value: Any, ids: Ids) -> Any:
    if isinstance(value, dict):
        return {key: _with_ids(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_ids(item, ids) for item in value]
    return ids[value[4:]] if isinstance(value, str) and value.startswith("$id:") else value


def answers_of(port: int, names: Container[str] | None = None) -> dict[str, Any]:
    """What a broker answers, which must have nothing yet.  `names`: of the questions that it is asked."""
    session = Session(port)
    try:
        ids = make(session)
        restrict(session)
        # Of versions that it does not serve any more there is nothing to tell.
        return {name: answer for name, answer in ask(session, ids, names).items() if answer != HUNG_UP}
    finally:
        session.close()


def recorded() -> dict[str, Any]:
    """What Kafka answered, by the names of the questions."""
    answers: dict[str, Any] = json.loads(FILE.read_text())
    return answers


def recorded_of_served() -> dict[str, Any]:
    """The same of the APIs and versions that kbroker serves."""
    handlers = {ApiKey(row.api_key).message_name: row for row in broker_rows()}
    found = {}
    for name, answer in recorded().items():
        api, version = name.split()[:2]
        if api in handlers and handlers[api].serves(int(version.strip(",v"))):
            found[name] = answer
    return found


def save(answers: dict[str, Any]) -> None:
    """Write the record, a line for each answer."""
    lines = [f"  {json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    save(answers_of(int(sys.argv[1])))
