"""What is counted of fetches, whichever way serves them: from their bytes, in a session, by the handler, or later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client.connection import Connection
from kbroker.schemas import wire
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.metrics.kafka_series import of, scraped
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

BATCH = raw.good_batch(5)
SIZE = len(BATCH)
LONG_MS = 60_000
Request = wire.FetchRequest
READ_COMMITTED = 1


class Counting:
    """A topic of one partition with so many batches, and what was counted of it."""

    def __init__(self, broker: BrokerProcess, topic: str, batches: int) -> None:
        self._broker = broker
        self.topic = topic
        raw.create_topic(broker.port, topic, 1)
        for _ in range(batches):
            self.produce()

    def produce(self) -> None:
        """One batch more."""
        with RawClient(self._broker.port) as client:
            assert raw.produce_answer(client.ask(raw.produce(self.topic, 0, BATCH)))[0] == raw.NONE

    def request(self, **fields: Any) -> wire.FetchRequest:
        """A fetch from the first offset on."""
        rows = [Request.FetchPartition(partition=0, fetch_offset=fields.pop("offset", 0), partition_max_bytes=1 << 20)]
        topics = [Request.FetchTopic(topic=self.topic, partitions=rows)] if fields.pop("named", 1) else []
        given: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
        return Request(replica_id=-1, topics=topics, **given)

    def counted(self) -> tuple[float, float]:
        """Bytes that were sent, and partitions that were asked for."""
        samples = scraped(self._broker.metrics_url)
        one = "kafka_server_brokertopicmetrics_"
        return (
            of(samples, f"{one}bytesout_total", topic=self.topic),
            of(samples, f"{one}totalfetchrequests_total", topic=self.topic),
        )


@pytest.fixture(name="connection")
def _connection(module_broker: BrokerProcess) -> Iterator[Connection]:
    with Connection("127.0.0.1", module_broker.port, client_id="reader") as connection:
        yield connection


def records(answer: wire.FetchResponse) -> int:
    """Bytes of records in an answer."""
    return sum(len(row.records or b"") for topic in answer.responses for row in topic.partitions)


@pytest.mark.parametrize(
    ("version", "isolation"),
    [
        pytest.param(4, 0, id="old"),
        pytest.param(12, 0, id="from its bytes"),
        pytest.param(12, READ_COMMITTED, id="read_committed"),
    ],
)
def test_a_fetch_counts_what_it_got(
    module_broker: BrokerProcess, connection: Connection, version: int, isolation: int
) -> None:
    """The traffic of consumers would depend on their version."""
    counting = Counting(module_broker, f"plain-{version}-{isolation}", 3)
    answer = connection.send(counting.request(isolation_level=isolation), version=version)
    assert records(answer) == 3 * SIZE
    assert counting.counted() == (3 * SIZE, 1)


def test_each_fetch_of_a_session_counts(module_broker: BrokerProcess, connection: Connection) -> None:
    """Consumers in sessions, as Java's all are, would not be seen, or only where there was something new."""
    counting = Counting(module_broker, "session", 2)
    first = connection.send(counting.request(session_epoch=0), version=12)
    assert first.session_id > 0 and records(first) == 2 * SIZE
    assert counting.counted() == (2 * SIZE, 1)
    # Goes on behind what it has: nothing new, then one batch.
    at_end = counting.request(session_id=first.session_id, session_epoch=1, offset=10)
    assert records(connection.send(at_end, version=12)) == 0
    assert counting.counted() == (2 * SIZE, 2)
    counting.produce()
    unnamed = counting.request(session_id=first.session_id, session_epoch=2, named=0)
    assert records(connection.send(unnamed, version=12)) == SIZE
    assert counting.counted() == (3 * SIZE, 3)


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_that_is_read_again_counts_once(module_broker: BrokerProcess, in_session: bool) -> None:
    """A consumer that asks for much at a time would seem to get all of it each time that a little comes."""
    counting = Counting(module_broker, f"again-{in_session}", 1)
    answers = []

    def fetch() -> None:
        with Connection("127.0.0.1", module_broker.port, client_id="patient") as patient:
            wanted = {"max_wait_ms": LONG_MS, "min_bytes": 3 * SIZE}
            if in_session:
                session = patient.send(counting.request(session_epoch=0, offset=5), version=12)
                wanted |= {"session_id": session.session_id, "session_epoch": 1}
            answers.append(patient.send(counting.request(**wanted), version=12, timeout_s=60))

    before = int(in_session)
    thread = threading.Thread(target=fetch)
    thread.start()
    wait_for(lambda: counting.counted()[1] == before + 1, "the fetch to wait")
    counting.produce()
    assert counting.counted() == (0, before + 1)
    counting.produce()
    thread.join(60)
    assert records(answers[0]) == 3 * SIZE
    assert counting.counted() == (3 * SIZE, before + 1)
