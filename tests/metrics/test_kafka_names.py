"""The metrics under Kafka's names against what dashboards and rules for Kafka ask for.

Also of `kbroker.assembly.kafka_figures`, `kbroker.metrics.kafka_exposition`, `kbroker.metrics.kafka_snapshot`,
`kbroker.metrics.kafka_sources`, `kbroker.metrics.kafka_table`, `kbroker.metrics.kafka_values`.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from kbroker.client.connection import Connection
from kbroker.schemas import wire
from tests.broker.client import until
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.metrics.kafka_series import BROKER, CONTROLLER, KRAFT, Samples, lacking, of, scraped, table, use
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

DOCS = Path(__file__).parents[2] / "docs" / "metrics-kafka.md"
USERS = {
    *(f"strimzi-{each}" for each in ("rules", "kafka", "kraft", "exporter")),
    *(f"confluent-{each}" for each in ("alerts", "platform", "cluster", "topics", "quotas", "transactions")),
    "awesome",
    *("exporter", "exporter-dashboard", "exporter-alerts"),
    "prometheus",
}


@pytest.fixture(name="used", scope="module")
def _used(module_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    use(module_broker.port)
    with Connection("127.0.0.1", module_broker.port, client_id="stays") as connection:
        said = wire.ApiVersionsRequest(client_software_name="a-client", client_software_version="1.2")
        assert connection.send(said, version=3).error_code == raw.NONE
        yield module_broker


def test_the_series_that_concern_a_broker_are_there(used: BrokerProcess) -> None:
    """Dashboards and alerts of those who come from Kafka would stay empty, and silence pass for health."""
    samples = scraped(used.metrics_url)
    rows = [row for row in table() if row.concerns == BROKER]
    missing = lacking(samples, BROKER)
    assert not missing
    in_quorums = sum(row.concerns in (KRAFT, CONTROLLER) for row in table())
    words = f"{len(rows) + in_quorums} of the {len(table())} series of that table concern a broker or a controller, and"
    assert words in " ".join(DOCS.read_text().split()), words


def test_every_name_of_the_table_is_asked_for_by_somebody() -> None:
    """A row twice, or of nobody, would make the share that is there say nothing."""
    names = [row.name for row in table()]
    assert len(names) == len(set(names))
    assert set().union(*(row.users for row in table())) == USERS
    assert all(row.users and row.concerns for row in table())


def by_others(samples: Samples, name: str) -> float:
    """The sum of all topics but that of groups' offsets."""
    of_groups = sum(value for labels, value in samples[name] if labels.get("topic") == "__consumer_offsets")
    return of(samples, name) - of_groups


def test_traffic_by_topic_is_what_clients_sent_and_got(used: BrokerProcess) -> None:
    """The traffic of a topic would be that of another one, or would be counted twice."""
    port, size = used.port, len(raw.good_batch(5))
    raw.create_topic(port, "counted", 1)
    before = scraped(used.metrics_url)
    with RawClient(port) as client:
        for _ in range(3):
            assert raw.produce_answer(client.ask(raw.produce("counted", 0, raw.good_batch(5))))[0] == raw.NONE
        assert raw.produce_answer(client.ask(raw.produce("counted", 0, b"\0" * 80)))[0] != raw.NONE
        client.ask(raw.fetch("counted", 0, 0))
    samples = scraped(used.metrics_url)
    for name, wanted in (
        ("messagesin", 15),
        ("bytesin", 3 * size),
        ("bytesout", 3 * size),
        ("totalproducerequests", 3),
        ("failedproducerequests", 0),
        ("totalfetchrequests", 1),
        ("failedfetchrequests", 0),
    ):
        one = f"kafka_server_brokertopicmetrics_{name}"
        assert of(samples, f"{one}_total", topic="counted") == wanted, name
        assert of(samples, f"{one}persec", topic="counted") == wanted, name
        # Groups of the tests before may still write to the topic of their offsets.
        assert by_others(samples, f"{one}_total") - by_others(before, f"{one}_total") == wanted, name


def test_what_a_deleted_topic_had_stays_in_the_sum(kbroker_process: StartBroker) -> None:
    """A sum that shrinks looks like a restart: Prometheus would add all that is left to the rate."""
    broker = kbroker_process()
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    raw.create_topic(broker.port, "short", 1)
    with RawClient(broker.port) as client:
        client.ask(raw.produce("short", 0, raw.good_batch(7)))
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert of(scraped(broker.metrics_url), name, topic="short") == 7
    admin.delete_topics(["short"])["short"].result(30)
    samples = scraped(broker.metrics_url)
    assert of(samples, name) == 7
    assert not any("topic" in labels and labels["topic"] == "short" for labels, _ in samples[name])


def test_a_refused_batch_is_a_failed_request_of_its_topic(kbroker_process: StartBroker) -> None:
    """Producers that fail would not be seen, or seen at another topic."""
    broker = kbroker_process()
    # A topic that is compacted takes no records without a key, which these are.
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    admin.create_topics([NewTopic("compacted", 1, config={"cleanup.policy": "compact"})])["compacted"].result(30)
    with RawClient(broker.port) as client:
        assert raw.produce_answer(client.ask(raw.produce("compacted", 0, raw.good_batch(1))))[0] == raw.INVALID_RECORD
    samples = scraped(broker.metrics_url)
    one = "kafka_server_brokertopicmetrics_"
    assert of(samples, f"{one}failedproducerequests_total", topic="compacted") == 1
    assert of(samples, f"{one}totalproducerequests_total", topic="compacted") == 1
    assert of(samples, f"{one}messagesin_total", topic="compacted") == 0
    errors = "kafka_network_requestmetrics_errorspersec"
    assert of(samples, errors, request="Produce", error="INVALID_RECORD") == 1


def test_offsets_and_lags_are_what_a_client_is_told(used: BrokerProcess) -> None:
    """kafka_exporter asks for what any client may: its users would see other lags than before."""
    samples = scraped(used.metrics_url)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{used.port}"})
    place = TopicPartition("seen", 0)
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].result(30).offset
    start = admin.list_offsets({place: OffsetSpec.earliest()})[place].result(30).offset
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", [place])]).values()
    committed = asked.result(30).topic_partitions[0].offset
    at = {"topic": "seen", "partition": "0"}
    group = {"consumergroup": "readers"}
    assert (start, end, committed) == (0, 20, 13)
    assert of(samples, "kafka_topic_partition_current_offset", **at) == end
    assert of(samples, "kafka_topic_partition_oldest_offset", **at) == start
    assert of(samples, "kafka_consumergroup_current_offset", **group, **at) == committed
    assert of(samples, "kafka_consumergroup_lag", **group, **at) == end - committed
    assert of(samples, "kafka_consumergroup_lag_sum", **group, topic="seen") == end - committed
    assert of(samples, "kafka_consumergroup_members", **group) == 0
    described = admin.list_topics("seen", timeout=30)
    row = described.topics["seen"].partitions[0]
    assert of(samples, "kafka_brokers") == len(described.brokers)
    assert of(samples, "kafka_topic_partitions", topic="seen") == len(described.topics["seen"].partitions)
    assert of(samples, "kafka_topic_partition_leader", **at) == row.leader
    assert of(samples, "kafka_topic_partition_replicas", **at) == len(row.replicas)
    assert of(samples, "kafka_topic_partition_in_sync_replica", **at) == len(row.isrs)
    assert of(samples, "kafka_topic_partition_under_replicated_partition", **at) == 0
    assert of(samples, "kafka_topic_partition_leader_is_preferred", **at) == 1
    (broker,) = described.brokers.values()
    (shown, _), *others = samples["kafka_broker_info"]
    assert shown == {"id": str(broker.id), "address": f"{broker.host}:{broker.port}"} and not others


def test_a_fetch_that_waits_is_remote_time(used: BrokerProcess) -> None:
    """The time that consumers wait for records would look like a slow broker."""
    with RawClient(used.port) as client:
        client.ask(raw.fetch("seen", 1, 0, wait_ms=300))
    samples = scraped(used.metrics_url)
    one = "kafka_network_requestmetrics_"
    total = of(samples, f"{one}totaltimems_sum", request="FetchConsumer")
    waited = of(samples, f"{one}remotetimems_sum", request="FetchConsumer")
    assert waited >= 250
    others = sum(
        of(samples, f"{one}{part}_sum", request="FetchConsumer")
        for part in ("localtimems", "requestqueuetimems", "responsequeuetimems", "responsesendtimems")
    )
    assert total - waited == pytest.approx(others)
    assert of(samples, f"{one}remotetimems", request="FetchConsumer", quantile="0.999") >= 250
    assert of(samples, f"{one}remotetimems_sum", request="Produce") == 0


def test_a_slow_reader_is_send_time(used: BrokerProcess) -> None:
    """A client that does not take its answers would look like a slow broker, or like nothing.

    `kbroker.metrics.kafka_requests`, `kbroker.metrics.kafka_rows`."""
    one = "kafka_network_requestmetrics_"
    batch = raw.good_batch(1, value=bytes(900_000))
    raw.create_topic(used.port, "large", 1)
    with RawClient(used.port) as client:
        for _ in range(8):
            assert raw.produce_answer(client.ask(raw.produce("large", 0, batch)))[0] == raw.NONE
    before = scraped(used.metrics_url)
    with RawClient(used.port, receive_buffer_bytes=4096) as client:
        client.send(raw.fetch("large", 0, 0, max_bytes=64_000_000))
        # The other client's requests are answered while this one's answer does not leave.
        with RawClient(used.port) as other:
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                other.ask(raw.fetch("seen", 0, 0))
        assert client.read() is not None
    labels = {"request": "FetchConsumer"}

    def grown(name: str) -> float:
        return of(scraped(used.metrics_url), f"{one}{name}", **labels) - of(before, f"{one}{name}", **labels)

    assert grown("responsesendtimems_sum") >= 250
    assert grown("totaltimems_sum") >= 250
    assert grown("localtimems_sum") + grown("remotetimems_sum") < grown("responsesendtimems_sum")


def test_requests_that_are_answered_together_have_queued(kbroker_process: StartBroker) -> None:
    """A broker whose clients wait for their turn would look idle."""
    broker = kbroker_process()
    raw.create_topic(broker.port, "crowd", 1)
    asked = raw.produce("crowd", 0, raw.good_batch(1))
    one = "kafka_network_requestmetrics_"

    def shown() -> list[float]:
        samples = scraped(broker.metrics_url)
        return [of(samples, f"{one}{name}_sum", request="Produce") for name in ("requestqueuetimems", "localtimems")]

    with ExitStack() as opened:
        clients = [opened.enter_context(RawClient(broker.port)) for _ in range(20)]

        def have_queued() -> bool:
            for client in clients:
                client.send(asked)
            assert all(raw.produce_answer(client.read() or b"")[0] == raw.NONE for client in clients)
            return shown()[0] > 0

        until(have_queued, "requests that are answered together")
    samples = scraped(broker.metrics_url)
    assert of(samples, f"{one}responsequeuetimems_sum", request="Produce") > 0
    parts = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems", "responsesendtimems")
    whole = sum(of(samples, f"{one}{part}_sum", request="Produce") for part in parts)
    assert whole == pytest.approx(of(samples, f"{one}totaltimems_sum", request="Produce"))
    count = of(samples, f"{one}requestbytes_count", request="Produce")
    # Without its length, its header and the client id in it.
    body = len(asked) - 4 - 8 - len(raw.string("hostile"))
    assert of(samples, f"{one}requestbytes_sum", request="Produce") == count * body


def test_connections_are_shown_by_the_software_of_their_clients(used: BrokerProcess) -> None:
    """Who still uses an old client would not be known."""
    samples = scraped(used.metrics_url)
    labels = {"client_software_name": "a-client", "client_software_version": "1.2", "listener": "PLAINTEXT"}
    assert of(samples, "kafka_server_socketservermetrics_connections", **labels) == 1


def test_a_setting_makes_kafkas_names_the_first(kbroker_process: StartBroker) -> None:
    """Scrape settings of those who come from Kafka ask for /metrics; kbroker's own names must stay in reach."""
    broker = kbroker_process({"kbroker.metrics.names": "kafka"})
    url = broker.metrics_url
    assert "kafka_brokers" in scraped(url, "/metrics") and "kbroker_build_info" not in scraped(url, "/metrics")
    assert "kafka_brokers" in scraped(url, "/metrics/kafka")
    assert "kbroker_build_info" in scraped(url, "/metrics/kbroker")


def test_open_metrics_is_what_its_parser_takes(used: BrokerProcess) -> None:
    """Prometheus asks for OpenMetrics, and drops a scrape with one line that is not."""
    request = urllib.request.Request(
        f"{used.metrics_url}/metrics/kafka", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        families = {family.name for family in parse_openmetrics(answer.read().decode())}
    assert "kafka_server_brokertopicmetrics_bytesin" in families


def test_very_many_partitions_have_sums_alone(kbroker_process: StartBroker) -> None:
    """A scrape of a broker with very many partitions would take seconds and megabytes."""
    broker = kbroker_process({"kbroker.metrics.max.partitions": "2"})
    raw.create_topic(broker.port, "two", 2)
    place = {"topic": "two", "partition": "1"}
    assert of(scraped(broker.metrics_url), "kafka_topic_partition_replicas", **place) == 1
    raw.create_topic(broker.port, "more", 1)
    samples = scraped(broker.metrics_url)
    assert not {"kafka_topic_partition_replicas", "kafka_log_log_size", "kafka_cluster_partition_atminisr"} & {*samples}
    assert of(samples, "kafka_topic_partitions", topic="two") == 2
    assert of(samples, "kafka_server_replicamanager_partitioncount") == 3
    assert of(samples, "kafka_server_brokertopicmetrics_bytesin_total", topic="two") == 0


def test_beans_have_the_names_of_an_exporter_without_rules(used: BrokerProcess) -> None:
    """Dashboards for JMX exporter's own names would stay empty.

    `kbroker.metrics.kafka_beans`, `kbroker.metrics.kafka_naming`, `kbroker.metrics.kafka_namings`."""
    raw_names, ruled = scraped(used.metrics_url, "/metrics/kafka/raw"), scraped(used.metrics_url)
    for name, labels, ruled_name in (
        ("kafka_server_BrokerTopicMetrics_Count", {"name": "MessagesInPerSec"}, "messagesin_total"),
        ("kafka_server_BrokerTopicMetrics_Count", {"name": "FailedFetchRequestsPerSec"}, "failedfetchrequests_total"),
    ):
        assert of(raw_names, name, **labels) == of(ruled, f"kafka_server_brokertopicmetrics_{ruled_name}")
    size = of(raw_names, "kafka_log_Log_Value", name="Size", topic="seen", partition="0")
    assert size == of(ruled, "kafka_log_log_size", topic="seen", partition="0") > 0
    count = of(raw_names, "kafka_network_RequestMetrics_Count", name="TotalTimeMs", request="Produce")
    assert count == of(ruled, "kafka_network_requestmetrics_totaltimems_count", request="Produce") > 0
    assert of(raw_names, "kafka_network_RequestMetrics_99thPercentile", name="TotalTimeMs", request="Produce") > 0
    assert of(raw_names, "kafka_network_RequestMetrics_50thPercentile", name="TotalTimeMs", request="Produce") > 0


def test_a_batch_above_the_limit_is_bytes_rejected(kbroker_process: StartBroker) -> None:
    """Producers whose records are too large would not be seen by those who watch for them."""
    broker = kbroker_process()
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    admin.create_topics([NewTopic("small", 1, config={"max.message.bytes": "100"})])["small"].result(30)
    batch = raw.good_batch(1, value=bytes(500))
    with RawClient(broker.port) as client:
        assert raw.produce_answer(client.ask(raw.produce("small", 0, batch)))[0] == raw.MESSAGE_TOO_LARGE
    samples = scraped(broker.metrics_url)
    name = "kafka_server_brokertopicmetrics_bytesrejected_total"
    assert of(samples, name) == of(samples, name, topic="small") == len(batch)
    one = "kafka_server_brokertopicmetrics_"
    assert of(samples, f"{one}totalproducerequests_total", topic="small") == 1
    assert of(samples, f"{one}failedproducerequests_total", topic="small") == 0, "Kafka counts no failure"


def test_what_waits_is_shown_by_kind(used: BrokerProcess) -> None:
    """Requests that pile up behind slow followers or idle topics would not be told from each other."""
    one = "kafka_server_delayedoperationpurgatory_"
    kinds = ("AlterAcls", "DeleteRecords", "Fetch", "Produce", "RemoteFetch", "RemoteListOffsets", "ShareFetch")
    with RawClient(used.port) as client:
        client.send(raw.fetch("seen", 1, 0, wait_ms=20_000))
        until(
            lambda: of(scraped(used.metrics_url), f"{one}purgatorysize", delayedoperation="Fetch") == 1,
            "a fetch that waits",
        )
        samples = scraped(used.metrics_url)
        for kind in kinds:
            assert of(samples, f"{one}numdelayedoperations", delayedoperation=kind) == (kind == "Fetch"), kind
        assert {labels["delayedoperation"] for labels, _ in samples[f"{one}purgatorysize"]} == {*kinds}


def test_the_upkeep_of_logs_has_kafkas_names(used: BrokerProcess) -> None:
    """An operator who looks at what Kafka's documents say to watch would see nothing."""
    raw.create_topic(used.port, "flushed", 1)
    samples = scraped(used.metrics_url)
    directories = {labels["logdirectory"] for labels, _ in samples["kafka_log_logmanager_logdirectoryoffline"]}
    assert len(directories) == 1
    assert all(value == 0 for _, value in samples["kafka_log_logmanager_logdirectoryoffline"])
    for name in ("uncleanable_partitions_count", "uncleanable_bytes"):
        rows = samples[f"kafka_log_logcleanermanager_{name}"]
        assert [(labels["logdirectory"], value) for labels, value in rows] == [(directories.copy().pop(), 0)]
    for name in ("deadthreadcount", "cleaner_recopy_percent", "max_buffer_utilization_percent", "max_clean_time_secs"):
        assert of(samples, f"kafka_log_logcleaner_{name}") == 0
    assert of(samples, "kafka_log_logcleanermanager_max_dirty_percent") >= 0
    assert of(samples, "kafka_log_logflushstats_logflushrateandtimems_count") >= 0
    assert of(samples, "kafka_controller_kafkacontroller_activebrokercount") == 1
