"""The same requests about share groups get the answers that Apache Kafka 4.3.1 gave, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kbroker.client.connection import Connection
from tests.broker_process import BrokerProcess
from tests.share.script import Script

ANSWERS = Path(__file__).parent / "vectors" / "kafka-4.3.1-answers.json"

# Where kbroker answers otherwise, and why.
DIFFERENT = {
    "unknown topic": "Kafka answers UNKNOWN_SERVER_ERROR to the whole request, kbroker UNKNOWN_TOPIC_ID to the topic",
    "unknown topic goes on": "the same",
}


def same(answer: Any) -> Any:
    """An answer without what two brokers, or two runs, may do differently: group epochs, and whether neighbours that
    were delivered equally often are named as one."""
    if isinstance(answer, list):
        return [same(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    answer = {name: same(value) for name, value in answer.items() if name != "member_epoch"}
    joined: list[dict[str, int]] = []
    for each in answer.get("acquired_records", ()):
        last = joined[-1] if joined else None
        neighbours = last is not None and last["last_offset"] + 1 == each["first_offset"]
        if last is not None and neighbours and last["delivery_count"] == each["delivery_count"]:
            last["last_offset"] = each["last_offset"]
        else:
            joined.append(dict(each))
    return {**answer, "acquired_records": joined} if "acquired_records" in answer else answer


def test_requests_get_kafkas_answers(broker: BrokerProcess) -> None:
    """A client that works with Kafka would stumble over another error code, or other records."""
    kafka = json.loads(ANSWERS.read_text())
    host, _, port = broker.bootstrap.partition(":")
    script = Script(lambda: Connection(host, int(port)))
    try:
        ours = script.run()
    finally:
        script.close()
    assert ours.keys() == kafka.keys()
    wrong = {step for step in kafka if same(ours[step]) != same(kafka[step])}
    assert wrong == set(DIFFERENT)
