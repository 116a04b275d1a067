"""When a fetch is answered of whose topics one is deleted: by kbroker and by Apache Kafka, with one judge."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kbroker.error_codes import ErrorCode
from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.scenarios.batches import Batch
from tests.scenarios.wire import Wire

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.timeout(300)]

BY_NAME, PRODUCE = 12, 8
MAX_WAIT_MS = 3000
AT_ONCE_SECONDS = 1.5


@pytest.fixture(params=[KbrokerProcess, pytest.param(KafkaProcess, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    found: BrokerProcess = request.param(tmp_path / "broker", {})
    found.start(seconds=240)
    yield found
    found.kill()


class WaitingFetch:
    """One that is on its way: from an offset in each topic."""

    def __init__(self, port: int, offsets: dict[str, int]) -> None:
        rows = {name: {"partition": 0, "fetch_offset": at, "partition_max_bytes": 1000} for name, at in offsets.items()}
        topics = [{"topic": name, "partitions": [row]} for name, row in rows.items()]
        body = {"replica_id": -1, "max_wait_ms": MAX_WAIT_MS, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
        self._wire = Wire(port)
        self._begun = time.monotonic()
        self._wire.send("Fetch", BY_NAME, {**body, "topics": topics})

    def answer(self) -> tuple[float, dict[str, int]]:
        """The seconds that it took, and the code for each topic."""
        with contextlib.closing(self._wire):
            answer = self._wire.answer("Fetch", BY_NAME)
        seconds = time.monotonic() - self._begun
        return seconds, {each.topic: each.partitions[0].error_code for each in answer.responses}


def write(port: int, topic: str) -> None:
    """One record."""
    rows = [{"index": 0, "records": Batch().encoded()}]
    body = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": rows}]}
    with contextlib.closing(Wire(port)) as wire:
        assert wire.ask("Produce", PRODUCE, body).responses[0].partition_responses[0].error_code == 0


def delete(broker: BrokerProcess, topic: str) -> None:
    """Delete a topic, and wait until a fetch of it says so."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.delete_topics([topic])[topic].result(30)

    def is_gone() -> bool:
        return WaitingFetch(broker.port, {topic: 0}).answer()[1] == {topic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    wait_for(is_gone, "the topic to be gone", seconds=60)


def test_a_topic_that_is_deleted_is_not_worth_an_answer_unless_it_is_the_only_one(broker: BrokerProcess) -> None:
    """The simulation would allow a fetch to wait that Apache Kafka answers: one that comes behind a deletion waits for
    the other topics, and one that waits as a topic goes is answered with that."""
    admin = Admin(broker.bootstrap)
    empty, gone, doomed = (admin.create_topic(name, 1) for name in ("empty", "gone", "doomed"))
    for name in (gone, doomed):
        write(broker.port, name)
    delete(broker, gone)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    seconds, codes = WaitingFetch(broker.port, {gone: 0, empty: 0}).answer()
    assert codes == {gone: unknown, empty: 0}
    assert seconds > MAX_WAIT_MS / 1000 - 0.1
    seconds, codes = WaitingFetch(broker.port, {gone: 0}).answer()
    assert codes == {gone: unknown}
    assert seconds < AT_ONCE_SECONDS
    waiting = WaitingFetch(broker.port, {doomed: 1, empty: 0})
    delete(broker, doomed)
    seconds, codes = waiting.answer()
    assert codes == {doomed: unknown, empty: 0}
    assert seconds < MAX_WAIT_MS / 1000 - 0.1
