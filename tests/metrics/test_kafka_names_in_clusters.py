"""The metrics under Kafka's names of brokers in a KRaft cluster, whose controller is Apache Kafka's.

Also of `kbroker.cluster.partition_reader`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.cluster.kraft.processes import Cluster, Kbroker, running
from tests.compat.waiting import wait_for
from tests.metrics.kafka_series import KRAFT, Samples, lacking, of, scraped

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PARTITIONS = 6


def test_brokers_of_a_cluster_show_each_partition_once(tmp_path: Path) -> None:
    """Sums over the brokers, which alerts make, would count a partition twice, or not at all."""
    with running(tmp_path, [Kbroker, Kbroker], settings={"metrics.listener": "http://127.0.0.1:0"}) as cluster:
        admin = cluster.admin()
        admin.create_topics([NewTopic("spread", PARTITIONS, 2)])["spread"].result(120)
        producer = Producer(cluster.client())
        for partition in range(PARTITIONS):
            producer.produce("spread", b"value", partition=partition)
        assert producer.flush(120) == 0
        cluster.wait_isr("spread", {1, 2})
        urls = metrics_of(cluster)
        assert len(urls) == 2

        def have_copied() -> bool:
            return all(of(scraped(url), "kafka_server_brokertopicmetrics_replicationbytesin_total") > 0 for url in urls)

        wait_for(have_copied, "both brokers to have copied records")
        pages = [scraped(url) for url in urls]
        _look_at(pages)


def test_the_lag_on_partitions_of_other_brokers_is_known(tmp_path: Path) -> None:
    """A group would seem to be level on every partition of which its coordinator has no replica."""
    with running(tmp_path, [Kbroker, Kbroker], settings={"metrics.listener": "http://127.0.0.1:0"}) as cluster:
        admin = cluster.admin()
        admin.create_topics([NewTopic("single", PARTITIONS, 1)])["single"].result(120)
        assert set(cluster.leaders("single")) == {1, 2}
        producer = Producer(cluster.client())
        for partition in range(PARTITIONS):
            producer.produce("single", b"value", partition=partition)
        assert producer.flush(120) == 0
        consumer = Consumer({**cluster.client(), "group.id": "behind", "enable.auto.commit": False})
        try:
            places = [TopicPartition("single", partition, 0) for partition in range(PARTITIONS)]
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

        def lags() -> dict[str, float]:
            return {
                labels["partition"]: lag
                for url in metrics_of(cluster)
                for labels, lag in scraped(url).get("kafka_consumergroup_lag", ())
            }

        # What a leader that is slow for once does not tell in time is left out of a scrape.
        wanted = {str(number): 1.0 for number in range(PARTITIONS)}
        wait_for(lambda: lags() == wanted, "the lag on all partitions")


def metrics_of(cluster: Cluster) -> list[str]:
    """Where the brokers have their metrics."""
    found = [re.search(r"metrics on port (\d+)", node.output()) for node in cluster.nodes.values()]
    return [f"http://127.0.0.1:{each.group(1)}" for each in found if each is not None]


def _look_at(pages: list[Samples]) -> None:
    for samples in pages:
        assert lacking(samples, KRAFT) == set()
        assert of(samples, "kafka_brokers") == 2
        assert of(samples, "kafka_server_raftmetrics_current_leader") > 2
        assert of(samples, "kafka_server_raftchannelmetrics_request_total") > 0
        assert of(samples, "kafka_server_raftchannelmetrics_incoming_byte_total") > 0
        assert of(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 0
        assert of(samples, "kafka_network_requestmetrics_requestspersec", request="FetchFollower") > 0
        assert of(samples, "kafka_server_replicafetchermanager_minfetchrate", clientid="Replica") > 0
    shown = [
        labels["partition"]
        for samples in pages
        for labels, _ in samples["kafka_topic_partition_in_sync_replica"]
        if labels["topic"] == "spread"
    ]
    assert sorted(shown) == [str(number) for number in range(PARTITIONS)]
    counts = [
        value
        for samples in pages
        for labels, value in samples.get("kafka_topic_partitions", ())
        if labels["topic"] == "spread"
    ]
    assert counts == [PARTITIONS]
    messages = [of(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic="spread") for samples in pages]
    assert sum(messages) == PARTITIONS
