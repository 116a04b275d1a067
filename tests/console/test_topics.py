"""What the console says of the broker, its topics and partitions.

Also of `kbroker.console.topic_lines`, `kbroker.console.topics`.
"""

from __future__ import annotations

from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer


def test_the_overview_adds_up(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """The first page would show what the metrics do not."""
    # Topics that tests before have made may not be among the logs that viewers share.
    told = viewer.wait(
        "overview", lambda told: [row["partition_count"] for row in told["directories"]] == [told["partition_count"]]
    )
    assert told["is_ready"] and told["health"] == ["ready"]
    assert told["topic_count"] >= 2 and told["partition_count"] >= 13
    assert told["totals"]["requests"] == sum(row["answered"] for row in told["apis"])
    (directory,) = told["directories"]
    assert directory["path"] == str(console_broker.data_dir) and directory["free_bytes"] > 0
    assert directory["partition_count"] == told["partition_count"]
    assert told["memory_bytes"] > 10_000_000 and told["messages_are_shown"]


def test_topics_are_listed_with_their_policy(viewer: Viewer) -> None:
    """A person would look for a topic in vain."""
    page = viewer.wait("topics", lambda page: page["rows"], q="c", sort="-partition_count")
    assert page["matching"] <= page["total"]
    (row,) = [row for row in page["rows"] if row["topic"] == "compacted"]
    assert (row["partition_count"], row["cleanup_policy"], row["is_internal"]) == (1, "compact", False)
    assert viewer.ask("topics", q="no such topic")["rows"] == []


def test_a_topic_has_its_partitions_and_settings(viewer: Viewer) -> None:
    """A person would not see what was set on the topic, or where its bytes lie."""
    told = viewer.ask("topic", name="plain", start=10)
    assert [row["partition"] for row in told["partitions"]] == [10, 11]
    assert told["partition_count"] == 12 and told["partitions"][0]["log"]["state"] == "ok"
    (policy,) = [row for row in viewer.ask("topic", name="compacted")["settings"] if row["name"] == "cleanup.policy"]
    assert (policy["value"], policy["source"], policy["is_set"]) == ("compact", "topic", True)


def test_a_partition_says_why_it_is_kept(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """The question that brings people here would stay open."""
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    producer.produce("compacted", b"value", b"key", partition=0)
    assert producer.flush(30) == 0
    told = viewer.ask("partition", name="compacted", partition=0)
    assert told["log"]["high_watermark"] >= 1 and told["log"]["segments"][-1]["state"] == "active"
    assert "active segment" in " ".join(told["log"]["explanation"]["compaction"])
    assert told["log"]["explanation"]["retention"]
