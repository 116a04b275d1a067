"""The wire client of executors against a running broker, and against what is no broker.

Also of `kbroker.client.address`, `kbroker.client.closing`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from kbroker._fast.records.record_batch import iterate_batches
from kbroker.client import cluster as cluster_module
from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientError,
    OffsetGoneError,
    RetriesExhaustedError,
    TopicUnknownError,
    UnsupportedError,
)
from kbroker.client.fetcher import Fetcher, FetchSettings
from kbroker.client.list_offsets import list_offsets
from kbroker.protocol.api import ApiKey
from kbroker.records.batch import iterate_records
from kbroker.schemas import request_message
from kbroker.types import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.conftest import StartBroker
from tests.network.raw_client import good_batch
from tests.ports import free_port


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, partition=partition, timestamp=1_000 + number)
    assert producer.flush(30) == 0


def read(fetcher: Fetcher, start: int, stop: int) -> list[bytes | None]:
    found = []
    for fetched in fetcher.frames(start, stop):
        for info in iterate_batches(fetched.records):
            found += [r.value for r in iterate_records(fetched.records, info) if start <= r.offset < stop]
    return found


@contextmanager
def impostor(answer: bytes | None) -> Iterator[int]:
    """A port that is no broker: answers every connection with these bytes; None: takes requests and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        links: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                links.append(link)
                if answer is not None:
                    link.recv(100)
                    link.sendall(answer)
                    link.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for link in links:
            link.close()
        thread.join(10)


class HandClock:
    """Time passes by waiting alone, however long what is tried between two waits takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_requests_in_flight_are_answered_in_order(module_broker: BrokerProcess) -> None:
    """A client that sends ahead would take one partition's records for another's."""
    with Connection("127.0.0.1", module_broker.port) as connection:
        metadata = request_message(ApiKey.METADATA)(topics=[], allow_auto_topic_creation=False)
        versions = request_message(ApiKey.API_VERSIONS)(client_software_name="test", client_software_version="1")
        tickets = [connection.post(metadata), connection.post(versions, version=3), connection.post(metadata)]
        assert connection.in_flight == 3
        with pytest.raises(RuntimeError, match="in the order of their requests"):
            connection.take(tickets[2])
        brokers, apis, again = [connection.take(ticket) for ticket in tickets]
        assert [row.port for row in brokers.brokers] == [row.port for row in again.brokers] == [module_broker.port]
        assert {row.api_key for row in apis.api_keys} == connection.versions.keys()


def test_a_version_that_nobody_has_in_common_is_named(module_broker: BrokerProcess) -> None:
    """The user would see a broken connection where the broker is merely too new or too old."""
    with Connection("127.0.0.1", module_broker.port) as connection:
        connection.versions[ApiKey.FETCH] = (500, 501)
        with pytest.raises(UnsupportedError, match=r"no common version of Fetch: .* has 500 to 501"):
            connection.version_of(ApiKey.FETCH)
        del connection.versions[ApiKey.FETCH]
        with pytest.raises(UnsupportedError, match="has no Fetch"):
            connection.version_of(ApiKey.FETCH)


def test_a_broker_that_is_down_is_named_with_what_to_do() -> None:
    """The user would search in Spark's traces for what "connection refused" is about."""
    port = free_port()
    with Cluster(f"127.0.0.1:{port}") as cluster, pytest.raises(BrokerUnreachableError) as caught:
        cluster.list_topics()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "start the broker, or correct kafka.bootstrap.servers" in str(caught.value)


def test_a_name_that_does_not_resolve_is_named() -> None:
    """As above, for a typing error in the host's name."""
    with Cluster("no-such-host.invalid:9092") as cluster, pytest.raises(BrokerUnreachableError, match="check the name"):
        cluster.list_topics()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"", "is this address a Kafka listener with security"),
        (b"\0\0\0\x06\0\0\0\x01\0", "is this address a Kafka listener with security"),
    ],
)
def test_what_is_no_kafka_listener_is_said_to_be_none(answer: bytes, says: str) -> None:
    """A wrong port (a web server, a TLS listener) would end in a hang or in a trace about a decoder."""
    with impostor(answer) as port, Cluster(f"127.0.0.1:{port}") as cluster, pytest.raises(ClientError, match=says):
        cluster.list_topics()


def test_a_broker_that_does_not_answer_is_given_up() -> None:
    """A job would hang for ever on a broker that hangs."""
    settings = ClientSettings(connect_timeout_s=0.2)
    says = "did not answer ApiVersions in time"
    with impostor(None) as port, Cluster(f"127.0.0.1:{port}", settings) as cluster:  # noqa: SIM117
        with pytest.raises(BrokerTimeoutError, match=says):
            cluster.list_topics()


def test_a_request_of_many_parts_arrives_whole(module_broker: BrokerProcess) -> None:
    """Jobs that write to many partitions at a time would send what no broker understands."""
    name = Admin(module_broker.bootstrap).create_topic("parts", 1500)
    request = request_message(ApiKey.PRODUCE)
    batch = good_batch(1, bytes(3_000))
    rows = [request.PartitionProduceData(index=number, records=batch) for number in range(1500)]
    topics = [request.TopicProduceData(name=name, partition_data=rows)]
    with Connection("127.0.0.1", module_broker.port) as connection:
        answer = connection.send(request(acks=-1, timeout_ms=20_000, topic_data=topics), version=9)
    (topic,) = answer.responses
    assert sorted(row.index for row in topic.partition_responses) == list(range(1500))
    assert {(row.error_code, row.base_offset) for row in topic.partition_responses} == {(0, 0)}


@pytest.mark.parametrize("bytes_at_a_time", [0, 16_384])
def test_a_broker_that_takes_a_request_too_slowly_is_given_up(
    module_broker: BrokerProcess, bytes_at_a_time: int
) -> None:
    """A job would hang at a broker that still takes a little now and then."""
    request = request_message(ApiKey.PRODUCE)
    rows = [request.PartitionProduceData(index=0, records=bytes(256 << 20))]
    body = request(acks=-1, timeout_ms=1000, topic_data=[request.TopicProduceData(name="none", partition_data=rows)])
    ended = threading.Event()
    with Connection("127.0.0.1", module_broker.port) as connection:
        ours, peers = socket.socketpair()

        def take() -> None:
            while not ended.wait(0.0001) and bytes_at_a_time:
                peers.recv(bytes_at_a_time)

        assert connection._socket is not None
        connection._socket.close()
        connection._socket = ours
        taker = threading.Thread(target=take)
        taker.start()
        try:
            with pytest.raises(BrokerTimeoutError, match=r"did not take the last \d+ bytes of a request in time"):
                connection.post(body, version=9, timeout_s=0.3)
        finally:
            ended.set()
            taker.join()
            peers.close()


def test_a_topic_that_does_not_exist_is_named_and_not_created(module_broker: BrokerProcess) -> None:
    """A typing error would create a topic, and the job would read nothing from it in silence."""
    with Cluster(module_broker.bootstrap) as cluster:
        with pytest.raises(TopicUnknownError, match=r"topic misspelt does not exist at .*check the name"):
            cluster.describe(["misspelt"])
        with pytest.raises(TopicUnknownError, match="cannot be the name of a topic"):
            cluster.describe(["mis spelt"])
        assert "misspelt" not in cluster.list_topics()


def test_offsets_by_place_and_by_time(module_broker: BrokerProcess) -> None:
    """A query would start or end at the wrong record."""
    topic = Admin(module_broker.bootstrap).create_topic("offsets", 3)
    produce(module_broker.bootstrap, topic, [b"x"] * 10)
    produce(module_broker.bootstrap, topic, [b"x"] * 4, partition=2)
    with Cluster(module_broker.bootstrap) as cluster:
        every = [(topic, number) for number in range(3)]

        def at(place: int) -> list[int]:
            found = list_offsets(cluster, dict.fromkeys(every, place))
            return [found[partition].offset for partition in every]

        assert at(EARLIEST) == [0, 0, 0]
        assert at(LATEST) == [10, 0, 4]
        assert at(MAX_TIMESTAMP) == [9, -1, 3]
        assert at(1_003) == [3, -1, 3]
        assert at(1_004) == [4, -1, -1]
        with pytest.raises(TopicUnknownError, match="has no partition 7: it has 3"):
            list_offsets(cluster, {(topic, 7): EARLIEST})


@pytest.mark.parametrize("max_bytes", [1, 500, 4 << 20])
def test_a_partition_is_read_from_any_offset_to_any_other(module_broker: BrokerProcess, max_bytes: int) -> None:
    """Records at the border of two fetches would be lost or doubled."""
    topic = Admin(module_broker.bootstrap).create_topic("fetched", 1)
    values = [b"%05d" % number for number in range(500)]
    for first in range(0, 500, 50):
        produce(module_broker.bootstrap, topic, values[first : first + 50], **{"batch.num.messages": 7})
    with Cluster(module_broker.bootstrap) as cluster:
        for start, stop in ((0, 500), (13, 14), (123, 457), (499, 500), (5, 5)):
            fetcher = Fetcher(cluster, topic, 0, FetchSettings(max_bytes=max_bytes))
            assert read(fetcher, start, stop) == values[start:stop]


def test_an_offset_that_is_gone_says_what_is_there(module_broker: BrokerProcess) -> None:
    """A job behind retention would hang, or go on elsewhere without a word."""
    topic = Admin(module_broker.bootstrap).create_topic("gone", 1)
    produce(module_broker.bootstrap, topic, [b"x"] * 10)
    with Cluster(module_broker.bootstrap) as cluster:
        partition = request_message(ApiKey.DELETE_RECORDS).DeleteRecordsPartition(partition_index=0, offset=4)
        rows = [request_message(ApiKey.DELETE_RECORDS).DeleteRecordsTopic(name=topic, partitions=[partition])]
        cluster.leader(topic, 0).send(request_message(ApiKey.DELETE_RECORDS)(topics=rows, timeout_ms=10_000))
        with pytest.raises(OffsetGoneError, match=r"has no offset 2: it has 4 to 10; .*deleted by retention") as caught:
            read(Fetcher(cluster, topic, 0), 2, 10)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (4, 10)
        with pytest.raises(OffsetGoneError, match=r"has no offset 50: it has 4 to 10; .*created anew"):
            read(Fetcher(cluster, topic, 0), 50, 60)


def test_a_reader_outlives_a_broker_that_is_killed(kbroker_process: StartBroker) -> None:
    """Every restart of a broker would fail the job, or make it read something twice."""
    broker = kbroker_process()
    topic = Admin(broker.bootstrap).create_topic("restarted", 1)
    values = [b"%06d" % number for number in range(20_000)]
    produce(broker.bootstrap, topic, values, **{"batch.num.messages": 100})
    with Cluster(broker.bootstrap) as cluster:
        found: list[bytes | None] = []
        position = 0
        restarts = 0
        for fetched in Fetcher(cluster, topic, 0, FetchSettings(max_bytes=30_000)).frames(0, len(values)):
            for info in iterate_batches(fetched.records):
                found += [record.value for record in iterate_records(fetched.records, info)]
                position = info.last_offset + 1
            if position > 5_000 * (restarts + 1) and restarts < 2:
                restarts += 1
                broker.restart(kill=True)
        assert restarts == 2
        assert found == values


def test_a_broker_that_stays_away_ends_the_reader_with_the_reason(
    kbroker_process: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job would hang for ever on a cluster that is gone."""
    monkeypatch.setattr(cluster_module, "time", HandClock())
    broker = kbroker_process()
    topic = Admin(broker.bootstrap).create_topic("away", 1)
    produce(broker.bootstrap, topic, [b"x" * 1000] * 100, **{"batch.num.messages": 1})
    settings = ClientSettings(patience_s=0.5)
    with Cluster(broker.bootstrap, settings) as cluster:
        frames = Fetcher(cluster, topic, 0, FetchSettings(max_bytes=2_000, poll_timeout_s=1.0)).frames(0, 100)
        next(frames)
        broker.kill()
        with pytest.raises(RetriesExhaustedError, match=r"gave up after .* without progress: .*nothing listens there"):
            list(frames)


def test_a_deleted_topic_ends_the_reader(module_broker: BrokerProcess) -> None:
    """A job would wait two minutes for a topic that does not come back."""
    admin = Admin(module_broker.bootstrap)
    topic = admin.create_topic("deleted", 1)
    produce(module_broker.bootstrap, topic, [b"x" * 1000] * 100, **{"batch.num.messages": 1})
    with Cluster(module_broker.bootstrap) as cluster:
        frames = Fetcher(cluster, topic, 0, FetchSettings(max_bytes=2_000)).frames(0, 100)
        next(frames)
        rows = request_message(ApiKey.DELETE_TOPICS)
        state = rows.DeleteTopicState(name=topic)
        cluster.any().close()
        with Connection("127.0.0.1", module_broker.port) as connection:
            connection.send(rows(topics=[state], topic_names=[topic], timeout_ms=10_000))
        with pytest.raises(TopicUnknownError, match="does not exist"):
            list(frames)
