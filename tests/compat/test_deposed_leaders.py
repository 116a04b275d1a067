"""What a leader answers that does not know that another one was elected, of kbroker and of Apache Kafka 3.9.1: one
program and one judge.  The simulation allows brokers what is shown here, and no more.

Three brokers with ZooKeeper.  One that is not the controller is cut off from ZooKeeper and from the other brokers, and
stays reachable for clients: it goes on in its epoch, while another one leads in the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kbroker.error_codes import ErrorCode
from tests.compat.waiting import wait_for
from tests.scenarios.batches import Batch
from tests.scenarios.faults import cluster as clusters
from tests.scenarios.faults.cluster import BROKERS, KINDS, Cluster
from tests.scenarios.faults.keepers import ZooKeeperKeeper
from tests.scenarios.faults.proxy import State
from tests.scenarios.wire import Wire

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.timeout(600)]

SETTINGS = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "30000", "zookeeper.session.timeout.ms": "6000"}
PRODUCE, LAST_BY_NAME, FIRST_BY_ID = 8, 12, 13
LAST_WITHOUT_EPOCHS, FIRST_WITH_EPOCHS = 8, 9
MAX_WAIT_MS = 300
NO_EPOCH = -1


class Deposed:
    """A cluster, a broker `old` that leads all topics, and `other`, which is to lead them after it; the third one is
    the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.controller = cluster.controller()
        self.old, self.other = (each for each in BROKERS if each != self.controller)
        self._wires: dict[int, Wire] = {}

    def create(self, *topics: str) -> None:
        """Topics that `old` leads and `other` follows."""
        admin = self.cluster.admin()
        new = [NewTopic(each, 1, replica_assignment=[[self.old, self.other]]) for each in topics]
        for future in admin.create_topics(new).values():
            future.result(60)
        for each in topics:
            wait_for(lambda name=each: self.fetch(self.old, name, 0).error_code == 0, "a leader", seconds=60)

    def ask(self, broker: int, api: str, version: int, body: dict[str, Any]) -> Any:
        """What one broker answers, past the proxies."""
        if broker not in self._wires:
            self._wires[broker] = Wire(self.cluster.nodes[broker].process.port)
        return self._wires[broker].ask(api, version, body)

    def close(self) -> None:
        """Ask nothing any more."""
        for wire in self._wires.values():
            wire.close()

    def produce(self, broker: int, topic: str, *, acks: int, producer: tuple[int, int, int] = (-1, -1, -1)) -> int:
        """The code for one record."""
        batch = Batch(producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
        rows = [{"index": 0, "records": batch.encoded()}]
        body = {"acks": acks, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": rows}]}
        answer = self.ask(broker, "Produce", PRODUCE, body)
        return int(answer.responses[0].partition_responses[0].error_code)

    def fetch(
        self,
        broker: int,
        topic: str,
        offset: int,
        *,
        version: int = LAST_BY_NAME,
        topic_id: bytes = bytes(16),
        replica: int = -1,
        epoch: int = NO_EPOCH,
    ) -> Any:
        """The answer for the partition of a topic."""
        row = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1 if replica < 0 else 0,
            "partition_max_bytes": 1 << 20,
        }
        body = {
            "replica_id": replica,
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [row]}],
        }
        return self.ask(broker, "Fetch", version, body).responses[0].partitions[0]

    def high_watermark(self, broker: int, topic: str) -> int:
        """What a broker shows consumers."""
        return int(self.fetch(broker, topic, 0).high_watermark)

    def topic_id(self, topic: str) -> bytes:
        """As its metadata have it."""
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        return bytes(self.ask(self.old, "Metadata", LAST_BY_NAME, body).topics[0].topic_id)

    def new_producer(self) -> tuple[int, int]:
        """An id and an epoch; a broker may have to get ids first."""
        found = []

        def is_given() -> bool:
            body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
            answer = self.ask(self.old, "InitProducerId", 4, body)
            found[:] = answer.producer_id, answer.producer_epoch
            return bool(answer.error_code == 0)

        wait_for(is_given, "a producer id", seconds=60)
        producer_id, epoch = found
        return producer_id, epoch

    @contextmanager
    def cut_off(self, *topics: str) -> Iterator[None]:
        """`old` is deposed, and does not hear of it."""
        assert isinstance(self.cluster.keeper, ZooKeeperKeeper)
        keeper = self.cluster.keeper
        links = self.cluster.nodes[self.old].links
        for name in ("brokers", keeper.link):
            self.cluster.proxies.set(links[name], State.CUT)
        for topic in topics:
            path = f"/brokers/topics/{topic}/partitions/0/state"
            wait_for(
                lambda path=path: keeper.json(path)["leader"] == self.other, "another leader", seconds=60, every=0.1
            )
            wait_for(
                lambda topic=topic: self.fetch(self.other, topic, 0).error_code == 0, "that leader to lead", seconds=60
            )
        yield

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """`other` stands still, for less than its session lasts."""
        process = self.cluster.nodes[self.other].process
        process.pause()
        try:
            yield
        finally:
            process.resume()


@pytest.fixture(params=["kbroker", pytest.param("kafka", marks=pytest.mark.slow)])
def deposed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deposed]:
    with clusters.running(tmp_path, SETTINGS, KINDS[request.param]) as cluster:
        found = Deposed(cluster)
        try:
            yield found
        finally:
            found.close()


def _believed(deposed: Deposed) -> None:
    """A fetch in a follower's name says what that has: without an epoch it is believed, with one that is over it is
    not."""
    topic = "believed"
    with deposed.frozen():
        assert deposed.produce(deposed.old, topic, acks=1) == 0
        assert deposed.high_watermark(deposed.old, topic) == 0
        row = deposed.fetch(deposed.old, topic, 1, version=FIRST_WITH_EPOCHS, replica=deposed.other, epoch=99)
        assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert deposed.high_watermark(deposed.old, topic) == 0
        row = deposed.fetch(deposed.old, topic, 1, version=LAST_WITHOUT_EPOCHS, replica=deposed.other)
        assert row.error_code == 0
        assert deposed.high_watermark(deposed.old, topic) == 1


def _waits(deposed: Deposed) -> None:
    """A fetch at its end waits for all of its time, and comes back empty, though more is committed."""
    assert deposed.produce(deposed.other, "fetched", acks=-1) == 0
    assert deposed.high_watermark(deposed.other, "fetched") == 2
    begun = time.monotonic()
    row = deposed.fetch(deposed.old, "fetched", 1)
    assert time.monotonic() - begun > MAX_WAIT_MS / 1000 - 0.05
    assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (0, 1, b"")


def _is_out_of_order(deposed: Deposed, producer_id: int, producer_epoch: int) -> None:
    """It lacks a producer's batches that the new leader has, and says so of the next: it does not say that it leads no
    more."""
    assert deposed.produce(deposed.other, "numbered", acks=-1, producer=(producer_id, producer_epoch, 1)) == 0
    third = (producer_id, producer_epoch, 2)
    for acks in (1, -1):
        assert deposed.produce(deposed.old, "numbered", acks=acks, producer=third) == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
    assert deposed.produce(deposed.other, "numbered", acks=-1, producer=third) == 0


def _is_still_read(deposed: Deposed, topic_id: bytes) -> None:
    """It has the records of a topic that is deleted, by name and by id."""
    admin = deposed.cluster.admin()
    admin.delete_topics(["deleted"])["deleted"].result(60)

    def is_gone() -> bool:
        code = deposed.fetch(deposed.other, "deleted", 0).error_code
        return bool(code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    wait_for(is_gone, "the topic to be gone for clients of the new leader", seconds=60)
    by_name = deposed.fetch(deposed.old, "deleted", 0)
    by_id = deposed.fetch(deposed.old, "", 0, version=FIRST_BY_ID, topic_id=topic_id)
    for row in (by_name, by_id):
        assert (row.error_code, row.high_watermark) == (0, 1)
        assert bytes(row.records)


def test_a_leader_that_is_deposed_answers_as_apache_kafkas_does(deposed: Deposed) -> None:
    """The judge of the simulation would allow what Apache Kafka's brokers do not do: readers that wait in vain, batches
    out of order, what followers have not, records of a topic that is deleted."""
    deposed.create("believed", "fetched", "numbered", "deleted")
    _believed(deposed)
    producer = deposed.new_producer()
    for topic in ("fetched", "deleted"):
        assert deposed.produce(deposed.old, topic, acks=-1) == 0
    assert deposed.produce(deposed.old, "numbered", acks=-1, producer=(*producer, 0)) == 0
    topic_id = deposed.topic_id("deleted")
    with deposed.cut_off("fetched", "numbered", "deleted"):
        _waits(deposed)
        _is_out_of_order(deposed, *producer)
        _is_still_read(deposed, topic_id)
