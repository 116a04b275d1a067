"""Asks one broker the generated requests of one API in one version, and records what it answers."""

from __future__ import annotations

import random
import re
import struct
from typing import Any

from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import message
from tests.differential.values import Values
from tests.scenarios.batches import T0, Batch
from tests.scenarios.session import Session
from tests.scenarios.wire import CLIENT_ID, Closed

VALID = 10
DAMAGED = 4
PARTITIONS = 2
# Topics and groups of questions, and Kafka's own.
OTHERS = re.compile(r"[A-Z][A-Za-z]+-\d+-|__")
TOPIC_ID = re.compile(r"topic-id-\d+")
# What no two brokers answer alike.
UNLIKE = frozenset({"cluster_id", "controller_id", "host", "port", "throttle_time_ms", "total_bytes", "usable_bytes"})


def ask_all(port: int, api: str, version: int, run: str = "0", seed: int = 0) -> list[Any]:
    """The answers to the requests of this API, version and seed, normalised; the last ones are of damaged requests.

    `run` keeps the topics and groups apart from those of earlier runs against the same broker.
    """
    session = Session(port)
    try:
        return _Questions(session, api, version, run, seed).ask()
    finally:
        session.close()


def of_others(item: Any, place: str) -> bool:
    """Whether an item of a list, such as of all topics, belongs to other questions."""
    if not isinstance(item, dict):
        return False
    if "protocol_type" in item and "group_id" in item and not item["group_id"].startswith(place):
        return True
    names = [item.get(key) for key in ("name", "topic", "topic_name")]
    return any(isinstance(name, str) and OTHERS.match(name) and not name.startswith(place) for name in names)


def tidy(value: Any, place: str) -> Any:
    """An answer without what belongs to other questions, and with ids that both brokers name alike."""
    if isinstance(value, dict):
        return {key: tidy(item, place) for key, item in value.items() if key not in UNLIKE}
    if isinstance(value, list):
        return [tidy(item, place) for item in value if not of_others(item, place)]
    return TOPIC_ID.sub("topic-id", value.replace(place, "here")) if isinstance(value, str) else value


class _Questions:
    def __init__(self, session: Session, api: str, version: int, run: str, seed: int) -> None:
        self._session = session
        self._api = api
        self._version = version
        self._rng = random.Random(f"{api} {version} {seed}")
        self._place = f"{api}-{version}-{seed}-{run}-"

    def ask(self) -> list[Any]:
        topics = [f"{self._place}a", f"{self._place}b"]
        ids = []
        for topic in topics:
            ids.append(self._session.create(topic, PARTITIONS))
            for partition in range(PARTITIONS):
                pairs = [(b"k%d" % number, b"v%d" % number) for number in range(5)]
                self._session.fill(topic, Batch(pairs, [T0 + number for number in range(5)]), partition=partition)
        group = f"{self._place}group"
        self._session.coordinator(group)
        rows = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}]
        self._session.quietly(
            "OffsetCommit",
            7,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": topics[0], "partitions": rows}],
        )
        values = Values(self._rng, topics, ids, [group])
        request_class = message(f"{self._api}Request")
        frames = [self._frame(request_class, values.request(request_class, self._version)) for _ in range(VALID)]
        for _ in range(DAMAGED):
            frames.append(self._damaged(self._frame(request_class, values.request(request_class, self._version))))
        answers = [self._answer(frame) for frame in frames]
        for topic in (*topics, f"{topics[0]}-missing", "x" * 250):
            self._session.quietly("DeleteTopics", 5, topic_names=[topic], timeout_ms=5000)
        return answers

    def _frame(self, request_class: Any, request: Any) -> bytes:
        return bytes(encode_request(request_class.api_key, self._version, 1, CLIENT_ID, request))

    def _damaged(self, frame: bytes) -> bytes:
        """The frame with its body cut, longer, or with one byte changed."""
        header = 4 + 8 + 2 + len(CLIENT_ID)
        body = frame[header:]
        kind = self._rng.randrange(3)
        if kind == 0:
            body = body[: self._rng.randrange(len(body))] if body else body
        elif kind == 1:
            body += bytes(self._rng.randrange(1, 8))
        elif body:
            at = self._rng.randrange(len(body))
            body = body[:at] + bytes([self._rng.choice((0x7F, 0x00, 0x01))]) + body[at + 1 :]
        return struct.pack(">i", header - 4 + len(body)) + frame[4:header] + body

    def _answer(self, frame: bytes) -> Any:
        session = self._session
        try:
            session.wire.send_raw(frame)
            payload = session.wire.receive()
        except (Closed, TimeoutError, ConnectionError) as end:
            session.redial()
            return "no answer" if isinstance(end, TimeoutError) else "connection closed"
        response = message(f"{self._api}Response")
        _, body = decode_response(response, self._version, payload)
        return tidy(session.normal.answer(response, self._version, body), self._place)
