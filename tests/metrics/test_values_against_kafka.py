"""What kbroker shows under Kafka's names beside what Apache Kafka's beans say of the same traffic, number by number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.tooling import run_java
from tests.metrics.kafka_series import scraped
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

Key = tuple[str, frozenset[tuple[str, str]]]
Values = Mapping[Key, float]
#: A bean's name as JMX writes it, then the attribute and the value.
_SAID = re.compile(r"^(kafka[.\w]*):type=([^,:]+)((?:,[\w-]+=(?:\"[^\"]*\"|[^,:]*))*):([\w -]+)\t(.*)$")
_PROPERTY = re.compile(r",([\w-]+)=(\"[^\"]*\"|[^,:]*)")
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
        java, *rest = super().command()
        jmx = "-Dcom.sun.management.jmxremote"
        return [
            java,
            f"{jmx}.port={self.jmx_port}",
            f"{jmx}.rmi.port={self.jmx_port}",
            f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false",
            f"{jmx}.host=127.0.0.1",
            "-Djava.rmi.server.hostname=127.0.0.1",
            *rest,
        ]

    def values(self) -> Values:
        """What all beans say now, by the names that JMX exporter has without rules."""
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self.jmx_port}/jmxrmi"
        options = ("--jmx-url", url, "--one-time", "--report-format", "tsv", "--object-name", "kafka.*:*")
        done = run_java("org.apache.kafka.tools.JmxTool", *options)
        assert done.returncode == 0, done.stderr
        found = {}
        for line in done.stdout.splitlines():
            match = _SAID.match(line)
            if match is not None and re.fullmatch(r"-?\d+(\.\d+)?(E-?\d+)?", match[5]):
                labels = frozenset((key, text.strip('"')) for key, text in _PROPERTY.findall(match[3]))
                found[fit(f"{match[1]}_{match[2]}_{match[4]}"), labels] = float(match[5])
        return found


def fit(name: str) -> str:
    return re.sub("[^a-zA-Z0-9:]+", "_", name)


def shown(broker: KbrokerProcess) -> Values:
    samples = scraped(f"http://127.0.0.1:{broker.metrics_port}", "/metrics/kafka/raw")
    return {(name, frozenset(labels.items())): value for name, rows in samples.items() for labels, value in rows}


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
    before = shown(kbroker), kafka.values()
    for port in (kbroker.port, kafka.port):
        use(port)
    now = shown(kbroker), kafka.values()
    count, differences = compared((before[0], now[0]), (before[1], now[1]))
    assert not differences, "\n".join(differences)
    assert count > 140
