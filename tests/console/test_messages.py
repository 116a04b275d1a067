"""Records over HTTP: ranges, time, text, committed ones, and what is refused.

Also of `kbroker.console.heads`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.console.viewer import STRANGE, Viewer


@pytest.fixture(scope="module")
def topic(console_broker: BrokerProcess, viewer: Viewer) -> str:
    """300 records of times 1,000,000 + index, then a transaction that is aborted and one that is committed."""
    name = console_broker.create_topic("records", 1)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    for index in range(300):
        producer.produce(name, f"value {index}", f"key {index}", timestamp=1_000_000 + index)
    assert producer.flush(30) == 0
    for end_offset, value, end in ((302, "taken back", "abort_transaction"), (304, STRANGE, "commit_transaction")):
        transactional = Producer({"bootstrap.servers": console_broker.bootstrap, "transactional.id": f"tx {end}"})
        transactional.init_transactions(30)
        transactional.begin_transaction()
        transactional.produce(name, value)
        assert transactional.flush(30) == 0
        getattr(transactional, end)(30)
        # A client has its answer before the marker is written.
        viewer.wait("ends", lambda told, end=end_offset: told["ends"] == [end], topic=name)
    return name


def test_the_newest_come_first_to_hand(viewer: Viewer, topic: str) -> None:
    """A viewer would see records from years ago."""
    told = viewer.ask("messages", topic=topic, count=3)
    assert told["end_offset"] == 304 and [row["offset"] for row in told["records"]] == [301, 302, 303]
    assert [row["control"] for row in told["records"]] == ["abort", "", "commit"]
    older = viewer.ask("messages", topic=topic, count=2, **{"from": "before", "value": told["first_offset"]})
    assert [row["offset"] for row in older["records"]] == [299, 300]


def test_records_are_found_by_offset_and_by_time(viewer: Viewer, topic: str) -> None:
    """A viewer could not look at what an alert or a log line names."""
    told = viewer.ask("messages", topic=topic, count=2, **{"from": "offset", "value": 17})
    assert [(row["offset"], row["value"]["text"]) for row in told["records"]] == [(17, "value 17"), (18, "value 18")]
    assert told["next_offset"] == 19 and not told["is_whole"]
    assert viewer.ask("messages", topic=topic, **{"from": "time", "value": 1_000_250})["first_offset"] == 250
    assert viewer.ask("messages", topic=topic, **{"from": "time", "value": 1 << 60})["first_offset"] == 304
    assert viewer.ask("messages", topic=topic, **{"from": "offset", "value": 1 << 62})["records"] == []
    assert viewer.ask("messages", topic=topic, count=1, **{"from": "oldest"})["first_offset"] == 0


def test_a_text_is_looked_for_in_the_whole_log(viewer: Viewer, topic: str) -> None:
    """A person who looks for an order would be told that there is none."""
    told = viewer.ask("messages", topic=topic, q="VALUE 29", **{"from": "oldest"})
    assert [row["offset"] for row in told["records"]] == [29, *range(290, 300)]
    assert told["looked_at"] == 304 and told["is_whole"]


def test_committed_readers_do_not_see_what_was_taken_back(viewer: Viewer, topic: str) -> None:
    """The console would show as true what a producer took back."""
    told = viewer.ask("messages", topic=topic, committed="yes", **{"from": "offset", "value": 300})
    assert [row["value"]["text"] for row in told["records"]] == [STRANGE]


def test_a_tail_learns_where_partitions_end(viewer: Viewer, topic: str) -> None:
    """A live tail would ask every partition for records each second, or miss some."""
    assert viewer.ask("ends", topic=topic) == {
        "topic": topic,
        "partition_count": 1,
        "starts": [0],
        "ends": [304],
    }
    assert len(viewer.ask("ends", topic="plain", committed="yes")["ends"]) == 12
    assert viewer.refused("ends", topic="none")[0] == 404


def test_the_next_record_of_each_partition_has_a_time(viewer: Viewer, topic: str) -> None:
    """Records of many partitions would not come in the order of their times."""

    def at(places: str, **fields: object) -> list[tuple[int, int | None, bool]]:
        told = viewer.ask("heads", topic=topic, at=places, **fields)
        return [(row["offset"], row["timestamp"], row["is_end"]) for row in told]

    assert at("0:300") == [(300, 1_000_299, False)] and at("0:0") == [(0, None, True)]
    assert at("0:299", direction="forth") == [(299, 1_000_299, False)]
    assert at("0:99999", direction="forth") == [(304, None, True)]
    assert at("0:0", direction="forth", time=1_000_250) == [(250, 1_000_250, False)]
    # Behind the end of a transaction there is a marker, which readers of committed records do not see.
    assert at("0:304", committed="yes") == [(304, None, False)]
    for bad in ("", "0", "0:x", "-1:0", ",".join(["0:1"] * 101)):
        assert viewer.refused("heads", topic=topic, at=bad)[0] == 400
    assert viewer.refused("heads", topic=topic, at="7:0")[0] == 404


def test_long_values_are_cut_unless_they_are_asked_for(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A page of large records would hold the browser, or one record could not be seen whole."""
    name = console_broker.create_topic("long", 1)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    producer.produce(name, b"x" * 500_000)
    assert producer.flush(30) == 0
    (cut,) = viewer.ask("messages", topic=name)["records"]
    assert len(cut["value"]["text"]) == 2048 and cut["value"]["is_cut"] and cut["value"]["size_bytes"] == 500_000
    (whole,) = viewer.ask("messages", topic=name, field_bytes=1 << 20)["records"]
    assert len(whole["value"]["text"]) == 500_000


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"topic": "none"}, 404),
        ({"topic": "records", "partition": 1}, 404),
        ({"topic": "records", "count": 0}, 400),
        ({"topic": "records", "count": 100_000}, 400),
        ({"topic": "records", "from": "middle"}, 400),
        ({"topic": "records", "from": "offset"}, 400),
        ({"topic": "records", "from": "offset", "value": -5}, 400),
        ({"topic": "records", "field_bytes": 1 << 30}, 400),
    ],
)
def test_bad_questions_are_refused(viewer: Viewer, topic: str, fields: dict[str, object], status: int) -> None:
    """A question could take the broker's memory, or end in a page of Python."""
    assert viewer.refused("messages", **fields)[0] == status


def test_records_of_internal_topics_say_what_they_mean(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Groups and transactions would be bytes in hexadecimal."""

    def used_in(told: Any) -> list[int]:
        return [row["partition"] for row in told["partitions"] if row["log"]["log_end_offset"]]

    used = used_in(viewer.wait("topic", used_in, name="__transaction_state", count=50))[0]
    told = viewer.ask("messages", topic="__transaction_state", partition=used, **{"from": "oldest"})
    assert told["records"][0]["meaning"]["type"] == "TransactionLog"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """A console that shows no records."""
    folder: Path = tmp_path_factory.mktemp("closed")
    with BrokerProcess(folder, {"kbroker.console.messages": "never"}) as broker:
        broker.create_topic("records", 1)
        yield Viewer(broker.metrics_port)


def test_records_are_not_shown_where_they_must_not_be(closed: Viewer) -> None:
    """Everybody who reaches the listener could read every topic."""
    assert closed.refused("messages", topic="records") == (
        403,
        "Records are not shown: kbroker.console.messages is never.",
    )
    assert closed.refused("ends", topic="records")[0] == 403
    assert closed.ask("overview")["messages_are_shown"] is False
    assert closed.ask("topic", name="records")["messages_are_shown"] is False
