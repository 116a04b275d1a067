"""Asks one broker the generated requests of one API in one version, and records what it answers."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.protocol.schema import parse_versions
from kbroker.schemas import message
from tests.compat.waiting import wait_for
from tests.differential.cases import Case, Resized, cases, damaged_frame, resized_frame
from tests.differential.places import CHANGES_PARTITIONS, PROBES, Place, share_state
from tests.differential.values import Live
from tests.scenarios.batches import T0, Batch
from tests.scenarios.normal import Normaliser
from tests.scenarios.session import Session
from tests.scenarios.wire import CLIENT_ID, Closed, build

# Their answers have the end of a partition, to which transactions that have timed out write at any time.
SHOWS_ENDS = frozenset({"Fetch", "ListOffsets", "OffsetForLeaderEpoch", "ShareFetch", "DescribeLogDirs"})
TOPICS = ("shared-a", "shared-b")
# How long an answer is waited for, and those of preparations.
SECONDS, PATIENCE = 3.0, 40.0
RECORDS = Batch([(b"k%d" % number, b"v%d" % number) for number in range(5)], [T0 + number for number in range(5)])
# A member id that a broker made.
MADE_ID = re.compile(r"^(?!member-)[A-Za-z0-9_-]{22}$")
# The ids of topics that the request did not name: each broker lists them in an order of its own.
OTHER_ID = re.compile(r"\btopic-id-(?!1\b)\d+")
# What no two brokers answer alike.
UNLIKE = frozenset({"cluster_id", "controller_id", "host", "port", "throttle_time_ms", "total_bytes", "usable_bytes"})
# What differs between any two brokers in the answer of one API.
UNLIKE_IN = {
    "ApiVersions": {"api_keys", "finalized_features", "finalized_features_epoch", "supported_features"},
    "DescribeLogDirs": {"log_dir", "partition_size"},
    # A hash of what there is to subscribe to.
    "GetTelemetrySubscriptions": {"subscription_id"},
    "AlterReplicaLogDirs": {"log_dir"},
}
# Lists of what a broker has, whoever made it: of those only what the request's place has is compared.
LISTINGS = {"ListGroups": "group_id", "ListTransactions": "transactional_id", "ListConfigResources": "resource_name"}


def _is_initialized(session: Session, transactional_id: str) -> bool:
    values = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    session.quietly("FindCoordinator", 3, key=transactional_id, key_type=1)
    return not session.quietly("InitProducerId", 2, **values).error_code


class Questions:
    """One broker, and the topics that all requests share."""

    def __init__(self, port: int) -> None:
        self.port = port
        session = Session(port, PATIENCE)
        for topic in TOPICS:
            session.create(topic, 2)
            for partition in range(2):
                session.fill(topic, RECORDS, partition=partition)
        for number in range(20):
            # Each partition of the coordinators' topics has been loaded.
            session.coordinator(f"warm-up-{number}")
            wait_for(partial(_is_initialized, session, f"warm-up-{number}"), "the transaction coordinator")
        self._ids = {topic: self._topic_id(session, topic) for topic in TOPICS}
        served = {row.api_key for row in session.quietly("ApiVersions", 0).api_keys}
        for number in range(20 if ApiKey.INITIALIZE_SHARE_GROUP_STATE in served else 0):
            place = Place(session, f"warm-up-{number}-", TOPICS[0], self._ids[TOPICS[0]], TOPICS[1])
            share_state(place)
        session.close()

    @staticmethod
    def _topic_id(session: Session, topic: str) -> bytes:
        found = session.quietly("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
        return bytes(found.topics[0].topic_id)

    def ask_all(self, api: str, version: int, every: int = 1) -> dict[str, Any]:
        """By the name of the case what was answered, normalised, and what the state was afterwards; of `every` so many
        cases one."""
        session = Session(self.port, PATIENCE)
        try:
            return dict(self._ask_all(session, api, version, every))
        finally:
            session.close()

    def ask_one(self, api: str, version: int, number: int, name: str, asker: Session) -> tuple[str, Any]:
        """A case's name and its answer, asked by somebody else at a place of this name that is made ready here."""
        session = Session(self.port, PATIENCE)
        case = cases(api, version)[number]
        topic, topic_id = TOPICS[0], self._ids[TOPICS[0]]
        if api in CHANGES_PARTITIONS or api in SHOWS_ENDS:
            topic = f"changes-{name}"
            topic_id = session.create(topic, 1)
            session.fill(topic, RECORDS)
        session.normal = Normaliser(self.port)
        session.normal.name("topic-id", topic_id)
        place = Place(session, f"{name}-", topic, topic_id, TOPICS[1])
        answer = _Question(place, api, version, case, asker).ask()
        for made in (*place.made, *((topic,) if topic not in TOPICS else ())):
            session.quietly("DeleteTopics", 5, topic_names=[made], timeout_ms=5000)
        session.close()
        return case.name, answer

    def _ask_all(self, session: Session, api: str, version: int, every: int) -> list[tuple[str, Any]]:
        listed = cases(api, version)
        topic, partitions = TOPICS[0], 0
        topic_id = self._ids[topic]
        if api in CHANGES_PARTITIONS:
            topic, partitions = f"changes-{api}-{version}", len(listed)
            topic_id = session.create(topic, partitions)
        found = []
        for number, case in enumerate(listed):
            if number % every:
                continue
            session.normal = Normaliser(self.port)
            session.normal.name("topic-id", topic_id)
            place = Place(session, f"{api}-{version}-{number}-", topic, topic_id, TOPICS[1])
            if partitions:
                place.partition = number
                session.fill(topic, RECORDS, partition=number)
            found.append((case.name, _Question(place, api, version, case).ask()))
            for made in place.made:
                session.quietly("DeleteTopics", 5, topic_names=[made], timeout_ms=5000)
        if partitions:
            session.quietly("DeleteTopics", 5, topic_names=[topic], timeout_ms=5000)
        return found


class _Question:
    """`asker`: whose connection has the request; the place's own makes the place ready and looks afterwards."""

    def __init__(self, place: Place, api: str, version: int, case: Case, asker: Session | None = None) -> None:
        self._place = place
        self._session = place.session
        self._asker = asker or place.session
        self._api = api
        self._version = version
        self._case = case
        self._request = message(f"{api}Request")

    def ask(self) -> Any:
        """What is answered, and what the probes show."""
        self._case.start.prepare(self._place)
        values = _at(self._place, self._case.values)
        expects = not (self._api == "Produce" and values.get("acks") == 0 and not self._case.damage)
        answer = self._answer(self._frame(values), expects)
        found = {"answer": answer}
        for api, version, ask in PROBES.get(self._api, ()):
            try:
                probe = self._session.quietly(api, version, **ask(self._place))
            except Closed:
                # An unanswered request may end the connection, too.
                found["answer"] = "connection closed"
                self._session.redial()
                probe = self._session.quietly(api, version, **ask(self._place))
            key = f"{api} afterwards"
            found[key if key not in found else f"{key} again"] = self._tidy(
                self._session.normal.answer(message(f"{api}Response"), version, probe)
            )
        return found

    def _frame(self, values: Any) -> bytes:
        resized = self._case.resized
        if isinstance(resized, Resized):
            frames = (self._encoded(_at(self._place, resized.empty)), self._encoded(_at(self._place, resized.one)))
            return resized_frame(frames, resized, self._version in parse_versions(self._request.schema.flexible))
        frame = self._encoded(values)
        if self._case.damage:
            return damaged_frame(frame, 4 + 8 + 2 + len(CLIENT_ID), self._case.damage, f"{self._api} {self._version}")
        return frame

    def _encoded(self, values: Any) -> bytes:
        body = build(self._request, values)
        return bytes(encode_request(self._request.api_key, self._version, 1, CLIENT_ID, body))

    def _answer(self, frame: bytes, expects: bool) -> Any:
        session = self._asker
        try:
            session.wire.patience(SECONDS)
            session.wire.send_raw(frame)
            if not expects:
                return "none"
            payload = session.wire.receive()
        except (Closed, TimeoutError, ConnectionError) as end:
            session.redial()
            return "no answer" if isinstance(end, TimeoutError) else "connection closed"
        session.wire.patience(PATIENCE)
        response = message(f"{self._api}Response")
        _, body = decode_response(response, self._version, payload)
        return self._tidy(self._session.normal.answer(response, self._version, body))

    def _tidy(self, value: Any) -> Any:
        """An answer without what belongs to other requests, and with names that both brokers have."""
        if isinstance(value, dict):
            unlike = UNLIKE | UNLIKE_IN.get(self._api, set())
            return {key: self._tidy(item) for key, item in value.items() if key not in unlike}
        if isinstance(value, list):
            found = [self._tidy(item) for item in value if not self._is_of_others(item)]
            return sorted(found) if found and all(isinstance(item, int) for item in found) else found
        return self._tidy_text(value) if isinstance(value, str) else value

    def _tidy_text(self, value: str) -> str:
        return OTHER_ID.sub("topic-id", MADE_ID.sub("made-id", value.replace(self._place.name, "here")))

    def _is_of_others(self, item: Any) -> bool:
        if not isinstance(item, dict):
            return False
        listed = item.get(LISTINGS.get(self._api, ""))
        if listed is not None:
            return self._place.name not in listed
        # Metadata and the like of all topics.
        names = [item.get(key) for key in ("name", "topic", "topic_name", "group_id")]
        return any(isinstance(name, str) and _is_generated(name) and not self._is_here(name) for name in names)

    def _is_here(self, name: str) -> bool:
        return self._place.name in name or name == self._place.topic


def _is_generated(name: str) -> bool:
    return name.startswith(("own-", "new-", "group-", "txn-", "changes-", "warm-up"))


def _at(place: Place, value: Any) -> Any:
    """The values with those of the place in them."""
    if isinstance(value, Live):
        found = getattr(place, value.attribute)
        return found if value.change is None else value.change(found)
    if isinstance(value, dict):
        return {key: _at(place, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_at(place, item) for item in value]
    return value
