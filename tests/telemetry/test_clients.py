"""What clients are asked to push, and what is kept of it: rules of KIP-714 and their limits.

Also of `kbroker.config.client_metrics`, `kbroker.handlers.cluster.telemetry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import client_metrics_config
from kbroker.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from kbroker.telemetry import clients as limits
from kbroker.telemetry.clients import Client, TelemetryClients
from kbroker.telemetry.otlp import Point, metric_name, read_points
from kbroker.telemetry.subscription import DEFAULT_INTERVAL_MS, ClientIdentity, subscription_for
from kbroker.types import METADATA_TOPIC_UUID, ZERO_UUID, uuid_to_text

ID = bytes(range(16))
ALL = {"all": {"metrics": "*", "interval.ms": "1000"}}


class World:
    """Clients over settings and a clock that a test moves."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        self.overrides = overrides
        self.seconds = 100.0
        self.link = SimpleNamespace(closed=False)
        self.clients = TelemetryClients(lambda: self.overrides, lambda: self.seconds)

    def identity(self, instance_id: str) -> ClientIdentity:
        return ClientIdentity(instance_id, "app-1", address="10.0.0.1", port=5000)

    def ask(self, instance_id: bytes = ID) -> int:
        return self.clients.subscribe(instance_id, self.identity, self.link)[1].subscription_id

    def push(
        self, subscription_id: int, *points: Point, last: bool = False, codec: int = 0, size_bytes: int = 10
    ) -> Client:
        client = self.clients.admit(
            ID,
            self.identity,
            self.link,
            subscription_id,
            is_terminating=last,
            compression_type=codec,
            size_bytes=size_bytes,
            max_bytes=1000,
        )
        self.clients.store(client, points)
        return client

    def shown(self) -> dict[str, float]:
        return {sample.name: sample.value for sample in self.clients.samples()}


@pytest.mark.parametrize(
    ("configs", "metrics", "interval_ms"),
    [
        ([], (), DEFAULT_INTERVAL_MS),
        ([{"metrics": "b,a"}], ("a", "b"), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "interval.ms": "500"}, {"metrics": "b", "interval.ms": "200"}], ("a", "b"), 200),
        ([{"metrics": "a"}, {"metrics": "*"}], ("*",), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "match": "client_id=app-.*"}], ("a",), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "match": "client_id=app"}], (), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "match": "client_id=[a-z&&[^b]]+-1"}], ("a",), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "match": "client_id=(?!app).*"}], (), DEFAULT_INTERVAL_MS),
        ([{"metrics": "a", "match": "client_id=app-1,client_source_port=6000"}], (), DEFAULT_INTERVAL_MS),
        (
            [{"metrics": "a", "match": "client_source_address=10\\..*,client_source_port=5000"}],
            ("a",),
            DEFAULT_INTERVAL_MS,
        ),
        ([{"interval.ms": "100", "match": "client_software_name=unknown"}], (), 100),
    ],
)
def test_all_subscriptions_that_fit_a_client_count(
    configs: list[dict[str, str]], metrics: tuple[str, ...], interval_ms: int
) -> None:
    """A client would push what nobody asked for, or leave out what an operator looks for."""
    identity = ClientIdentity("id", "app-1", address="10.0.0.1", port=5000)
    found = subscription_for(identity, map(client_metrics_config, configs))
    assert (found.metrics, found.interval_ms) == (metrics, interval_ms)


def test_a_pattern_cannot_hold_up_the_loop() -> None:
    """A client whose id is made for it would stop the broker."""
    for pattern in ("(a+)+$", "(a|aa)+[b-c]d"):
        config = client_metrics_config({"metrics": "a", "match": f"client_id={pattern}"})
        assert subscription_for(ClientIdentity("id", "a" * 30_000 + "b"), [config]).metrics == ()
    with pytest.raises(InvalidConfigError):
        client_metrics_config({"match": "client_id=(a"})


def test_a_client_asks_and_pushes_once_in_an_interval() -> None:
    """A client in a loop would cost the broker more than its records do."""
    world = World(ALL)
    number = world.ask()
    with pytest.raises(ThrottlingQuotaExceededError):
        world.ask()
    world.push(number)
    with pytest.raises(ThrottlingQuotaExceededError):
        world.push(number)
    world.seconds += 1
    world.push(number)
    world.seconds += 0.5
    world.push(number, last=True)
    world.seconds += 10
    with pytest.raises(InvalidRequestError):
        world.push(number)


def test_a_changed_subscription_sends_clients_to_ask_again() -> None:
    """Clients would go on pushing what nobody wants any more."""
    world = World(ALL)
    number = world.ask()
    world.push(number)
    world.overrides = {"all": {"metrics": "a", "interval.ms": "1000"}}
    with pytest.raises(UnknownSubscriptionIdError):
        world.push(number)
    newer = world.ask()
    assert newer != number
    world.push(newer)
    world.overrides = dict(world.overrides)
    world.seconds += 1
    world.push(newer)


def test_what_cannot_be_read_is_refused() -> None:
    """Memory would be used up by what clients send, or a client would not know to send less or otherwise."""
    world = World(ALL)
    number = world.ask()
    with pytest.raises(UnsupportedCompressionTypeError):
        world.push(number, codec=5)
    assert world.ask() == number
    with pytest.raises(TelemetryTooLargeError):
        world.push(number, size_bytes=1001)
    with pytest.raises(InvalidRequestError):
        world.clients.subscribe(METADATA_TOPIC_UUID, world.identity, world.link)
    made, _ = world.clients.subscribe(ZERO_UUID, world.identity, world.link)
    assert made != ZERO_UUID
    with pytest.raises(InvalidRecordError):
        read_points(b"\xff\xff\xff", 10)


def test_counts_since_the_last_push_are_added_up() -> None:
    """A counter would go up and down with each push."""
    world = World(ALL)
    number = world.ask()
    for value in (3.0, 4.0):
        world.push(number, Point("grows", (), value, True, True), Point("is", (), value, False, False))
        world.seconds += 1
    assert world.shown() == {"grows": 7.0, "is": 4.0}
    (sample, *_) = world.clients.samples()
    assert sample.labels == {"client_id": "app-1", "client_instance_id": uuid_to_text(ID)}


def test_silent_clients_are_forgotten() -> None:
    """Values of clients that ended long ago would be shown, and kept, for ever."""
    world = World(ALL)
    world.push(world.ask(), Point("is", (), 1.0, False, False))
    world.seconds += 3.1
    assert world.shown() == {} and len(world.clients) == 0


def test_a_client_that_dials_anew_begins_anew_and_its_values_stay() -> None:
    """It would be refused for an interval each time that it lost its connection, or its last values not be shown."""
    world = World(ALL)
    world.push(world.ask(), Point("a", (), 1.0, False, False), last=True)
    with pytest.raises(ThrottlingQuotaExceededError):
        world.ask()
    world.link.closed, world.link = True, SimpleNamespace(closed=False)
    world.push(world.ask())
    assert world.shown() == {"a": 1.0}


def test_clients_and_their_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who can connect could use up the broker's memory."""
    monkeypatch.setattr(limits, "MAX_CLIENTS", 3)
    monkeypatch.setattr(limits, "MAX_POINTS", 2)
    monkeypatch.setattr(limits, "MAX_VALUES", 3)
    world = World(ALL)
    points = [Point(name, (), 1.0, False, False) for name in "abc"]
    for index in range(5):
        instance_id = bytes([index] * 16) if index else ID
        client = world.clients.admit(
            instance_id,
            world.identity,
            world.link,
            world.ask(instance_id),
            is_terminating=False,
            compression_type=0,
            size_bytes=1,
            max_bytes=1,
        )
        world.clients.store(client, points)
        assert len(client.values) <= 2
    assert len(world.clients) == 3
    assert len(list(world.clients.samples())) <= 3


@given(st.text(max_size=30))
def test_any_name_becomes_one_that_prometheus_takes(name: str) -> None:
    """One client with an odd metric would make every scrape fail, or pass its values for the broker's."""
    shown = metric_name(name)
    assert shown.isascii() and shown.replace("_", "a").isalnum() and not shown[0].isdigit()
    assert shown.startswith(("org_apache_kafka_", "client_"))


def test_gauges_and_sums_are_read() -> None:
    """What clients push would not be what a scrape shows."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    gauge = scope.metrics.add(name="org.apache.kafka.producer.record.queue.time.avg")
    point = gauge.gauge.data_points.add(as_double=1.5)
    point.attributes.append(KeyValue(key="node.id", value=AnyValue(int_value=3)))
    point.attributes.append(KeyValue(key="__name__", value=AnyValue(string_value="x")))
    total = scope.metrics.add(name="org.apache.kafka.producer.connection.creation.total")
    total.sum.is_monotonic = True
    total.sum.aggregation_temporality = 1
    total.sum.data_points.add(as_int=7)
    scope.metrics.add(name="kbroker_partitions").gauge.data_points.add(as_double=9)
    scope.metrics.add(name="histogram").histogram.data_points.add(count=3)
    read = read_points(data.SerializeToString(), 10)
    assert read == [
        Point(
            "org_apache_kafka_producer_record_queue_time_avg",
            (("attribute_name__", "x"), ("node_id", "3")),
            1.5,
            False,
            False,
        ),
        Point("org_apache_kafka_producer_connection_creation_total", (), 7.0, True, True),
        Point("client_kbroker_partitions", (), 9.0, False, False),
    ]
    assert len(read_points(data.SerializeToString(), 2)) == 2
