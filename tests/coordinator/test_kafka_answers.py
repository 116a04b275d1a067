"""The same requests, byte for byte, get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.coordinator.harness import World
from tests.coordinator.script import Script
from tests.coordinator.wire import Client, plain

ANSWERS = Path(__file__).parent / "vectors" / "kafka-4.3.1-answers.json"

# Where kbroker answers otherwise, and why.
DIFFERENT = {
    "find bad type": "the message names the key type",
    "find bad type v3": "the message names the key type",
    "describe gx v5": "a refused join leaves no group behind",
    "list v5": "a refused join leaves no group behind",
    "list type classic": "a refused join leaves no group behind",
    "describe pending v5": "a group whose first member is about to come back is Empty, not Dead",
}


def answers_of_both() -> tuple[dict[str, Any], dict[str, Any]]:
    world = World()
    ours = Script(Client(world), Client(world)).run()
    return json.loads(ANSWERS.read_text()), {label: plain(answer) for label, answer in ours.items()}


def test_requests_get_kafkas_answers() -> None:
    """A client that works with Kafka would stumble over another error code, or a field that is set otherwise."""
    kafka, ours = answers_of_both()
    assert ours.keys() == kafka.keys()
    wrong = {label for label in kafka if reordered(kafka[label]) != ours[label]}
    assert wrong == DIFFERENT.keys()


def test_other_messages_come_with_kafkas_codes() -> None:
    """A client acts on the code, whatever the message says."""
    kafka, ours = answers_of_both()
    for label in ("find bad type", "find bad type v3"):
        assert codes(ours[label]) == codes(kafka[label])


def codes(value: Any) -> list[int]:
    """All error codes in an answer."""
    if isinstance(value, dict):
        own = [value["error_code"]] if "error_code" in value else []
        return own + [code for each in value.values() for code in codes(each)]
    return [code for each in value for code in codes(each)] if isinstance(value, list) else []


def reordered(value: Any) -> Any:
    """An answer with its lists in the order that `plain` gives them."""
    if isinstance(value, dict):
        return {name: reordered(each) for name, each in value.items()}
    return sorted((reordered(each) for each in value), key=repr) if isinstance(value, list) else value
