"""Why logs are kept and not compacted, and why groups rebalanced, for the whole broker.

Also of `kbroker.console.why`.
"""

from __future__ import annotations

from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.console.group_pages import joined
from tests.console.viewer import Viewer


def test_the_three_questions_are_answered(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A person would have to open every partition and group to find the one that matters."""
    viewer.do("topic.create", name="why-kept", partitions=7, settings={"retention.ms": "3600000"})
    viewer.do("topic.create", name="why-dirty", partitions=1, settings={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for name in ("why-kept", "why-dirty"):
        producer.produce(name, b"x" * 1000, b"k", partition=3 if name == "why-kept" else 0)
    assert producer.flush(30) == 0
    consumer = joined(console_broker, "why-group", "why-kept", "classic")
    told = viewer.ask("why", q="WHY-")
    assert {row["topic"] for row in told["kept"]} == {"why-kept", "why-dirty"}
    (kept,) = [row for row in told["kept"] if row["topic"] == "why-kept"]
    # One row for a topic, with its largest log first.
    assert (kept["partition_count"], len(kept["logs"])) == (7, 5)
    first = kept["logs"][0]
    assert first["partition"] == 3 and kept["size_bytes"] == first["size_bytes"] > 1000
    assert "goes by age in 60 min" in " ".join(first["sentences"])
    (dirty,) = told["dirty"]
    assert (dirty["topic"], told["compacted_count"]) == ("why-dirty", 1)
    assert "active segment" in " ".join(dirty["logs"][0]["sentences"])
    (group,) = told["rebalanced"]
    assert group["group_id"] == "why-group" and group["reason"] and group["at_ms"] <= told["now_ms"]
    consumer.close()
    nothing = viewer.ask("why", q="no such name")
    assert (nothing["kept"], nothing["dirty"], nothing["rebalanced"]) == ([], [], [])
