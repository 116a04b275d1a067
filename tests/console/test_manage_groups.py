"""Groups, moved and deleted from the console.

Also of `kbroker.console.manage.groups`, `kbroker.console.manage.share_groups`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.client.connection import Connection
from tests.broker_process import BrokerProcess
from tests.console.group_pages import joined
from tests.console.viewer import Viewer
from tests.share.script import ALICE, Script


@pytest.fixture(scope="module")
def topic(console_broker: BrokerProcess) -> str:
    """Ten records in the first of two partitions, of times 1,000 + number."""
    name = console_broker.create_topic("resettable", 2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(10):
        producer.produce(name, b"x", partition=0, timestamp=1_000 + index)
    assert producer.flush(30) == 0
    return name


def committed(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    """Commit for a group without members."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def offsets_of(viewer: Viewer, group: str) -> dict[int, int | None]:
    """What the group has committed, by partition."""
    return {row["partition"]: row["committed"] for row in viewer.ask("group", id=group)["offsets"]}


def test_a_group_is_moved_to_the_offsets_that_were_shown(
    console_broker: BrokerProcess, viewer: Viewer, topic: str
) -> None:
    """Records would be read twice or never, without a word before."""
    committed(console_broker, "moves", topic, 4)
    plan = viewer.plan("group.reset", id="moves", where="earliest")
    assert plan["table"]["rows"] == [[topic, 0, 4, 0, -4]] and "read again" in plan["warnings"][0]
    viewer.perform(plan)
    assert offsets_of(viewer, "moves") == {0: 0}
    plan = viewer.plan("group.reset", id="moves", topic=topic, where="latest")
    assert plan["table"]["rows"] == [[topic, 0, 0, 10, 10], [topic, 1, None, 0, None]]
    assert "skipped" in plan["warnings"][0]
    viewer.perform(plan)
    assert offsets_of(viewer, "moves") == {0: 10, 1: 0}
    for where, value, offset in (("time", 1_003, 3), ("offset", 99, 10), ("shift", -3, 7), ("time", 9_999, 10)):
        viewer.do("group.reset", id="moves", topic=topic, partition=0, where=where, value=value)
        assert offsets_of(viewer, "moves")[0] == offset
    assert (
        viewer.cannot("group.reset", id="moves", where="latest")[2]
        == "nothing would change: the group is there already"
    )


def test_a_group_that_went_on_meanwhile_is_left_alone(
    console_broker: BrokerProcess, viewer: Viewer, topic: str
) -> None:
    """What consumers have read since a person looked would be read again."""
    committed(console_broker, "goes on", topic, 2)
    plan = viewer.plan("group.reset", id="goes on", where="earliest")
    committed(console_broker, "goes on", topic, 5)
    answer = viewer.post("perform", plan)
    assert answer.status == 409 and answer.value["plan"]["table"]["rows"] == [[topic, 0, 5, 0, -5]]
    assert offsets_of(viewer, "goes on") == {0: 5}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_not_touched(
    console_broker: BrokerProcess, viewer: Viewer, topic: str, protocol: str
) -> None:
    """Its members would write over what was set, or lose their group."""
    group = f"busy {protocol}"
    consumer = joined(console_broker, group, topic, protocol)
    for action in ("group.reset", "group.delete"):
        status, code, error = viewer.cannot(action, id=group, where="earliest")
        assert (status, code) == (400, "NON_EMPTY_GROUP") and "1 member" in error
    consumer.close()
    viewer.do("group.reset", id=group, where="earliest")
    assert offsets_of(viewer, group)[0] == 0


def test_a_group_is_deleted_with_what_was_shown(console_broker: BrokerProcess, viewer: Viewer, topic: str) -> None:
    """A group would be gone that a person did not mean."""
    committed(console_broker, "dies", topic, 4)
    plan = viewer.plan("group.delete", id="dies")
    assert plan["confirm"] == "dies" and plan["table"]["rows"] == [[topic, 0, 4]]
    viewer.perform(plan)
    assert viewer.refused("group", id="dies")[0] == 404
    assert viewer.cannot("group.delete", id="dies")[0] == 404


def test_the_log_says_who_did_what_in_one_line(console_broker: BrokerProcess, viewer: Viewer, topic: str) -> None:
    """Nobody could find out who deleted a group, or an id could write lines of its own into the log."""
    committed(console_broker, "two\nlines", topic, 4)
    viewer.do("group.delete", id="two\nlines")
    said = "User:ANONYMOUS at 127.0.0.1: Delete the group two?lines (group.delete): done"
    assert said in console_broker.output()


def test_a_group_forgets_one_topic(console_broker: BrokerProcess, viewer: Viewer, topic: str) -> None:
    """Its lag of a topic that it no longer reads would stay for good."""
    committed(console_broker, "forgets", topic, 4)
    committed(console_broker, "forgets", "plain", 0)
    assert viewer.plan("group.forget", id="forgets", topic=topic)["table"]["rows"] == [[0, 4]]
    viewer.do("group.forget", id="forgets", topic=topic)
    assert {row["topic"] for row in viewer.ask("group", id="forgets")["offsets"]} == {"plain"}
    assert viewer.cannot("group.forget", id="forgets", topic=topic)[0] == 404


def test_bad_questions_about_groups_are_refused(viewer: Viewer, topic: str) -> None:
    """A person would get an error of Python."""
    assert viewer.cannot("group.reset", id="nobody")[2] == "the group has committed nothing: name a topic"
    assert viewer.cannot("group.reset", id="x", topic=topic, partition=2)[0] == 400
    assert viewer.cannot("group.reset", id="x", topic=topic, where="middle")[0] == 400
    assert viewer.cannot("group.reset", id="x", topic="none")[0] == 404
    assert viewer.cannot("group.reset")[2] == "id is missing"


def test_a_share_group_begins_anew_where_it_was_shown(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Of share groups nothing could be changed, though the page shows them like the others."""
    host, _, port = console_broker.bootstrap.partition(":")
    script = Script(lambda: Connection(host, int(port)), "-console")
    try:
        script.create_topic("t")
        script.set_group("g", share_auto_offset_reset="earliest")
        script.produce("t", 5)
        script.join("g", ALICE, ["t"])
        group, topic = "g-console", "t-console"
        assert viewer.cannot("share.reset", id=group, where="latest")[1] == "NON_EMPTY_GROUP"
        assert script.heartbeat("g", ALICE, -1).error_code == 0
        plan = viewer.plan("share.reset", id=group, topic=topic, where="latest")
        assert plan["table"]["rows"][0][:2] == [topic, 0] and plan["table"]["rows"][0][3] == 5
        assert viewer.perform(plan)["sentences"] == ["1 partition begins anew."]
        (line,) = viewer.wait("group", lambda told: told["lag"] == 0, id=group)["offsets"]
        assert (line["committed"], line["lag"]) == (5, 0)
        viewer.do("share.reset", id=group, where="shift", value=-2)
        assert viewer.plan("share.forget", id=group, topic=topic)["table"]["rows"] == [[0, 3]]
        viewer.do("share.forget", id=group, topic=topic)
        assert viewer.cannot("share.forget", id=group, topic=topic)[0] == 404
        viewer.do("group.delete", id=group)
        assert viewer.cannot("share.reset", id=group, where="latest")[0] == 404
    finally:
        script.close()
