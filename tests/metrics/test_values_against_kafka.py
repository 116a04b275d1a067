"""What kbroker shows under Kafka's names beside what Apache Kafka's beans say of the same traffic, number by number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.metrics.jmx import Values, beans, opened, shown
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TOPIC, SMALL = "counted", "small"
#: Of the machine, of a moment, or of threads: two brokers differ in them whatever they are asked.
UNLIKE = re.compile(
    r"linux-disk|IdlePercent|BlockedPercent|time-since-last|Lag(Ms)?$|MinFetchRate|remaining(Logs|Segments)|QueueSize"
    # Kafka keeps requests that are answered until it sweeps; subtracts times that it has not set yet; and counts what
    # its metadata log is flushed, twice a second.
    r"|PurgatorySize|max-clean-time-secs|LogFlushRateAndTimeMs"
)
#: Sums over all values since the start, so that the same requests have the same.
MEANS = frozenset({"RequestBytes"})
OF_CLIENTS = frozenset({"Produce", "Fetch", "FetchConsumer"})


class WatchedKafka(KafkaProcess):
    """Apache Kafka whose beans can be read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"auto.create.topics.enable": "false"})
        self.jmx_port = free_port()

    def command(self) -> list[str]:
        return opened(super().command(), self.jmx_port)


def prepare(port: int) -> None:
    # The records are of 1970: on a slow machine retention would come before the numbers are read.
    raw.create_topic(port, TOPIC, 2, config={"retention.ms": "-1"})
    raw.create_topic(port, SMALL, 1, config={"max.message.bytes": "100"})


def use(port: int) -> None:
    """The same requests for both, byte by byte."""
    batch = raw.good_batch(5)
    with RawClient(port) as client:
        for partition in (0, 0, 0, 1):
            assert raw.produce_answer(client.ask(raw.produce(TOPIC, partition, batch)))[0] == raw.NONE
        assert raw.produce_answer(client.ask(raw.produce(TOPIC, 0, batch, acks=-1)))[0] == raw.NONE
        too_large = client.ask(raw.produce(SMALL, 0, raw.good_batch(1, value=bytes(500))))
        assert raw.produce_answer(too_large)[0] == raw.MESSAGE_TOO_LARGE
        broken = batch[:-1] + bytes([batch[-1] ^ 1])
        assert raw.produce_answer(client.ask(raw.produce(TOPIC, 1, broken)))[0] == raw.CORRUPT_MESSAGE
        for unreadable in (bytes(80), batch[:40], batch[:8] + bytes(4) + batch[12:]):
            client.ask(raw.produce(TOPIC, 0, unreadable))
        client.ask(raw.produce("nowhere", 0, batch))
        for offset in (0, 10, 99):
            client.ask(raw.fetch(TOPIC, 0, offset))
        client.ask(raw.fetch(TOPIC, 1, 5, wait_ms=300))
        client.ask(raw.api_versions())


@pytest.fixture(name="both", scope="module")
def _both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KbrokerProcess, WatchedKafka]]:
    kafka = WatchedKafka(tmp_path_factory.mktemp("kafka"))
    kbroker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"), {"auto.create.topics.enable": "false"})
    try:
        kafka.start()
        kbroker.start()
        yield kbroker, kafka
    finally:
        kbroker.stop()
        kafka.stop()


def is_compared(name: str, labels: dict[str, str]) -> bool:
    bean = labels.get("name", "")
    if name.endswith("_Mean"):
        return bean in MEANS and labels.get("request") in OF_CLIENTS
    return name.endswith(("_Count", "_Value")) and not UNLIKE.search(bean)


def compared(ours: tuple[Values, Values], theirs: tuple[Values, Values]) -> tuple[int, list[str]]:
    """How many numbers both have, and those that differ: of counts how they have grown, of others what they are."""
    differences, count = [], 0
    for key in ours[1].keys() & theirs[1].keys():
        name, labels = key[0], dict(key[1])
        if is_compared(name, labels):
            count += 1
            is_count = name.endswith("_Count")
            one, other = (now[key] - (before.get(key, 0.0) if is_count else 0.0) for before, now in (ours, theirs))
            if one != pytest.approx(other):
                differences.append(f"{name} {labels}: {one} here, {other} there")
    return count, differences


def test_each_number_is_kafkas_for_the_same_traffic(both: tuple[KbrokerProcess, WatchedKafka]) -> None:
    """A dashboard would say of kbroker what is not so, and nothing on it would look wrong."""
    kbroker, kafka = both
    for port in (kbroker.port, kafka.port):
        prepare(port)
    before = shown(kbroker.metrics_port), beans(kafka.jmx_port)
    for port in (kbroker.port, kafka.port):
        use(port)
    now = shown(kbroker.metrics_port), beans(kafka.jmx_port)
    count, differences = compared((before[0], now[0]), (before[1], now[1]))
    assert not differences, "\n".join(differences)
    assert count > 140
