"""Topics, changed from the console: what is shown first, what is done, what is refused.

Also of `kbroker.console.manage.topics`, `kbroker.console.manage.settings`, `kbroker.console.manage.context`,
`kbroker.console.manage.actions`, `kbroker.console.manage.retention_losses`, `kbroker.console.manage.setting_words`.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from kbroker.console.manage.setting_words import in_words
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer


def test_a_topic_is_made_as_it_was_shown(viewer: Viewer) -> None:
    """A person would make a topic that is other than the page said."""
    plan = viewer.plan("topic.create", name="made", partitions=3, settings={"retention.ms": "60000"})
    assert plan["title"] == "Create the topic made" and plan["confirm"] == ""
    assert plan["sentences"] == [
        "The topic made is made, with 3 partitions and 1 replica of each.",
        "On it is set retention.ms=60000.",
    ]
    assert viewer.refused("topic", name="made")[0] == 404
    assert viewer.perform(plan)["sentences"] == ["The topic made is there."]
    told = viewer.ask("topic", name="made")
    assert told["partition_count"] == 3
    assert [row["value"] for row in told["settings"] if row["name"] == "retention.ms"] == ["60000"]


def test_what_cannot_be_made_is_said_before(viewer: Viewer) -> None:
    """A person would learn it only from the failure."""
    assert viewer.cannot("topic.create", name="plain")[:2] == (400, "TOPIC_ALREADY_EXISTS")
    assert viewer.cannot("topic.create", name="no/name")[:2] == (400, "INVALID_TOPIC_EXCEPTION")
    assert viewer.cannot("topic.create", name="x", replicas=3)[:2] == (400, "INVALID_REPLICATION_FACTOR")
    assert viewer.cannot("topic.create", name="x", settings={"retention.ms": "soon"})[1] == "INVALID_CONFIG"
    assert viewer.cannot("topic.create")[::2] == (400, "name is missing")
    assert viewer.cannot("topic.create", name=7)[::2] == (400, "name must be a text")
    assert viewer.cannot("topic.create", name="x", partitions="many")[0] == 400
    assert viewer.cannot("topic.burn", name="x")[0] == 404


def test_a_topic_is_deleted_only_while_it_is_the_one_that_was_shown(
    console_broker: BrokerProcess, viewer: Viewer
) -> None:
    """A topic made anew under the name meanwhile would be deleted with what others have written to it."""
    viewer.do("topic.create", name="goes", partitions=2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(5):
        producer.produce("goes", b"x", partition=index % 2)
    assert producer.flush(30) == 0
    plan = viewer.plan("topic.delete", name="goes")
    assert "2 partitions and 5 records" in plan["sentences"][0] and plan["confirm"] == "goes"
    viewer.perform(plan)
    viewer.do("topic.create", name="goes", partitions=2)
    answer = viewer.post("perform", plan)
    assert answer.status == 409 and answer.value["plan"]["title"] == "Delete the topic goes"
    assert viewer.ask("topic", name="goes")["partition_count"] == 2
    viewer.perform(answer.value["plan"])
    assert viewer.cannot("topic.delete", name="goes") == (404, "", "there is no topic goes")


def test_settings_of_a_topic_show_what_was_and_what_will_be(viewer: Viewer) -> None:
    """A person would not know what a change replaces, or overwrite what another has set meanwhile."""
    viewer.do("topic.create", name="configured", settings={"retention.ms": "1000"})
    plan = viewer.plan("topic.configure", name="configured", set={"cleanup.policy": "compact"}, unset=["retention.ms"])
    assert plan["table"]["rows"] == [
        ["cleanup.policy", "delete (not set here)", "compact"],
        ["retention.ms", "1000", "the default"],
    ]
    assert plan["sentences"][:2] == ["cleanup.policy: delete → compact.", "retention.ms: 1 s → the default."]
    viewer.do("topic.configure", name="configured", set={"retention.ms": "2000"})
    answer = viewer.post("perform", plan)
    assert answer.status == 409 and ["retention.ms", "2000", "the default"] in answer.value["plan"]["table"]["rows"]
    viewer.perform(answer.value["plan"])
    own = {row["name"]: row["value"] for row in viewer.ask("topic", name="configured")["settings"] if row["is_set"]}
    assert own == {"cleanup.policy": "compact"}
    assert viewer.cannot("topic.configure", name="configured", set={"cleanup.policy": "burn"})[1] == "INVALID_CONFIG"
    assert viewer.cannot("topic.configure", name="configured")[::2] == (400, "no setting is named")


def test_what_retention_would_delete_is_counted(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A person would be warned before each change of retention, and would no longer read it where records go."""
    viewer.do("topic.create", name="shortened", partitions=2, settings={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    hour_ago = int(time.time() * 1000) - 3_600_000
    producer.produce("shortened", b"x" * 1000, partition=1, timestamp=hour_ago)
    producer.produce("shortened", b"young", partition=0)
    assert producer.flush(30) == 0
    (size,) = [row["log"]["size_bytes"] for row in viewer.ask("topic", name="shortened")["partitions"][1:]]
    for kept in ({"retention.ms": "7200000"}, {"retention.bytes": str(1 << 30)}, {"segment.bytes": str(1 << 30)}):
        assert viewer.plan("topic.configure", name="shortened", set=kept)["warnings"] == []
    plan = viewer.plan("topic.configure", name="shortened", set={"retention.ms": "1800000"})
    assert plan["sentences"][0] == "retention.ms: no limit → 30 min."
    assert plan["warnings"] == [
        f"Within minutes 1 segment with {size:,} bytes of 1 partition is deleted here, which the settings of now keep."
    ]
    compacted = viewer.plan("topic.configure", name="shortened", set={"cleanup.policy": "compact", "retention.ms": "1"})
    assert compacted["warnings"] == []
    viewer.do("topic.delete", name="shortened")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "3600000", "1 h"),
        ("retention.ms", "5400000", "90 min"),
        ("retention.ms", "604800001", "604,800,001 ms"),
        ("retention.ms", "-1", "no limit"),
        ("log.retention.hours", "168", "7 d"),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("segment.bytes", "1000", "1,000 bytes"),
        ("flush.ms", "9223372036854775807", "9,223,372,036,854,775,807 ms"),
        ("segment.jitter.ms", "0", "0 ms"),
        ("cleanup.policy", "compact", "compact"),
        ("cleanup.policy", "", "empty"),
        ("num.io.threads", "8", "8"),
        ("retention.ms", None, "not set"),
    ],
)
def test_values_are_said_as_people_say_them(name: str, value: str | None, words: str) -> None:
    """A person would take 36000000 for an hour."""
    assert in_words(name, value) == words


def test_partitions_are_added_and_never_taken(viewer: Viewer) -> None:
    """Keys would go elsewhere without a warning."""
    viewer.do("topic.create", name="grows", partitions=2)
    plan = viewer.plan("topic.partitions", name="grows", count=5)
    assert "it has 2 now" in plan["sentences"][0] and "Keys go to other partitions" in plan["warnings"][0]
    viewer.perform(plan)
    assert viewer.ask("topic", name="grows")["partition_count"] == 5
    assert viewer.cannot("topic.partitions", name="grows", count=3)[1] == "INVALID_PARTITIONS"
    assert viewer.post("perform", plan).status == 400


def test_records_are_deleted_before_the_offsets_that_were_shown(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Records that came after a person had looked would be deleted as well."""
    name = console_broker.create_topic("emptied", 2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(6):
        producer.produce(name, b"x", partition=0, timestamp=1_000 + index)
    assert producer.flush(30) == 0
    plan = viewer.plan("topic.truncate", name=name, where="all")
    assert plan["table"]["rows"] == [[0, 0, 6, 6, 6]] and plan["fields"]["offsets"] == {"0": 6}
    by_time = viewer.plan("topic.truncate", name=name, where="time", value=1_004)
    assert by_time["table"]["rows"] == [[0, 0, 6, 4, 4]]
    producer.produce(name, b"later", partition=0)
    assert producer.flush(30) == 0
    assert viewer.perform(plan)["table"]["rows"] == [[0, 6]]
    (record,) = viewer.ask("messages", topic=name, partition=0, **{"from": "oldest"})["records"]
    assert record["value"]["text"] == "later"
    assert viewer.cannot("topic.truncate", name=name, where="offset", value=6, partition=0)[0] == 400
    assert viewer.cannot("topic.truncate", name=name, where="all", partition=2)[0] == 400
    assert viewer.cannot("topic.truncate", name="none")[0] == 404
    assert viewer.cannot("topic.truncate", name="compacted", where="all")[1] == "POLICY_VIOLATION"


def test_settings_of_brokers_are_changed_at_run_time(viewer: Viewer) -> None:
    """A person would have to leave the console for a command."""
    plan = viewer.plan("broker.configure", set={"log.cleaner.threads": "2"})
    assert plan["title"] == "Change settings of all brokers"
    viewer.perform(plan)
    (row,) = viewer.ask("settings", q="log.cleaner.threads", show="changed")["rows"]
    assert (row["value"], row["source"]) == ("2", "set at run time, all brokers")
    viewer.do("broker.configure", unset=["log.cleaner.threads"])
    assert viewer.ask("settings", q="log.cleaner.threads", show="changed")["rows"] == []
    assert viewer.cannot("broker.configure", set={"node.id": "9"})[0] == 400
    assert viewer.cannot("broker.configure", name="77", set={"log.cleaner.threads": "2"})[::2] == (
        400,
        "there is no broker 77",
    )
