"""The records of Apache Kafka 4.3.1's active controller for scripted requests, and ours for the same ones.

The expected rows are what real controllers wrote (three brokers of one directory each, metadata.version 30, ELR on) and
answered; ids, directories, random placements and the order of maps are ours.

Of `kbroker.metadata.delta_records`, `kbroker.cluster.controller.broker_configs`,
`kbroker.cluster.controller.feature_levels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kbroker.cluster.controller.feature_levels import feature_update_records
from kbroker.cluster.requests import (
    ConfigEdit,
    EditOperation,
    ElectionType,
    NewPartitions,
    NewTopic,
    Reassignment,
)
from kbroker.error_codes import ErrorCode
from kbroker.errors import InvalidUpdateVersionError
from kbroker.metadata.features import KRAFT_VERSION, FeatureUpdate
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from tests.cluster.controller.led import Led, at, bootstrap, directory, setting
from tests.unbroken import finished

Rows = list[tuple[str, Any]]

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


def rows(led: Led) -> Rows:
    """What was written, topics by name, directories by broker."""
    names = {topic.topic_id: name for name, topic in led.written.topics.items()}
    found = []
    for kind, _, fields in led.records():
        if "topic_id" in fields:
            fields["topic_id"] = names.get(fields["topic_id"], "gone")
        if "directories" in fields:
            fields["directories"] = [each[0] - 100 for each in fields["directories"]]
        found.append((kind, fields))
    return found


def partition(number: int, replicas: Sequence[int], topic: str) -> tuple[str, dict[str, Any]]:
    fields = {
        "topic_id": topic,
        "replicas": list(replicas),
        "isr": list(replicas),
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": list(replicas),
    }
    return "PartitionRecord", {**({"partition_id": number} if number else {}), **fields}


def change(topic: str, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "PartitionChangeRecord", {"partition_id": number, "topic_id": topic, **fields}


def config(kind: int, resource: str, name: str, value: str | None) -> tuple[str, dict[str, Any]]:
    fields = {"resource_type": kind, "resource_name": resource, "name": name, "value": value}
    return "ConfigRecord", {key: each for key, each in fields.items() if each != ""}


def level(name: str, number: int) -> tuple[str, dict[str, Any]]:
    return "FeatureLevelRecord", {"name": name, **({"feature_level": number} if number else {})}


def plain(found: Rows) -> Rows:
    """Without zeros, which are the defaults of some fields and not of others."""
    return [
        (kind, {name: each for name, each in fields.items() if each is None or each != 0}) for kind, fields in found
    ]


def assert_rows(led: Led, expected: Rows) -> None:
    assert plain(rows(led)) == plain(expected)


# Topics


def test_a_topic_with_settings(led: Led) -> None:
    """A standby would take the settings of one topic for those of another, or none."""
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "2", "retention.ms": "1000"}
    new = NewTopic("cfg", assignments=[(0, (2, 3)), (1, (3, 1))], configs=configs)
    (outcome,) = finished(led.controller.create_topics([new]))
    assert outcome.error is None
    expected = [
        ("TopicRecord", {"name": "cfg", "topic_id": "cfg"}),
        *(config(TOPIC, "cfg", *each) for each in configs.items()),
        ("ClearElrRecord", {"topic_name": "cfg"}),
        partition(0, (2, 3), "cfg"),
        partition(1, (3, 1), "cfg"),
    ]
    assert_rows(led, expected)
    assert len(led.log.batches[-1][1]) == len(expected)


def test_two_topics_of_a_request_follow_each_other(led: Led) -> None:
    """Names that only collide with each other are both made, as in Kafka."""
    news = [NewTopic("x.y", assignments=[(0, (1,))]), NewTopic("x_y", assignments=[(0, (1,))])]
    assert all(each.error is None for each in finished(led.controller.create_topics(news)))
    expected = [
        row
        for name in ("x.y", "x_y")
        for row in (("TopicRecord", {"name": name, "topic_id": name}), partition(0, (1,), name))
    ]
    assert_rows(led, expected)
    led.create("p.q", [1])
    (outcome,) = finished(led.controller.create_topics([NewTopic("p_q", 1, 1)]))
    assert outcome.error.code == ErrorCode.INVALID_TOPIC_EXCEPTION


NEW_TOPICS: list[tuple[NewTopic, int, str]] = [
    (NewTopic("a", 1, 1), 36, "Topic 'a' already exists."),
    (NewTopic("r", 1, 9), 38, "Unable to replicate the partition 9 time(s): The target replication factor of 9 cannot"),
    (NewTopic("z", 0, 1), 37, ""),
    (NewTopic("rz", 1, 0), 38, ""),
    (NewTopic("cf", 1, 1, configs={"nope": "1"}), 40, ""),
    (NewTopic("cf2", 1, 1, configs={"retention.ms": "x"}), 40, ""),
    (NewTopic("as", assignments=[(0, (1, 9))]), 39, "includes broker 9, but no such broker is registered."),
    (NewTopic("as2", assignments=[(0, (1, 1))]), 39, "includes the broker 1 more than once."),
    (NewTopic("as3", assignments=[(0, (1, 2)), (1, (1,))]), 39, "is not consistent with previous partitions"),
    (NewTopic("as4", 3, -1, assignments=[(0, (1,))]), 42, ""),
    (NewTopic("as5", assignments=[(0, ())]), 39, ""),
    (NewTopic("__cluster_metadata", 1, 1), 42, ""),
]


@pytest.mark.parametrize("case", NEW_TOPICS, ids=lambda case: case[0].name)
def test_topics_that_cannot_be_made(led: Led, case: tuple[NewTopic, int, str]) -> None:
    """One erroneous topic of a request leaves no record, and keeps no other from being made."""
    led.create("a", [1, 2, 3])
    new, code, text = case
    outcomes = finished(led.controller.create_topics([new, NewTopic("fine", assignments=[(0, (1,))])]))
    assert (outcomes[0].error.code, outcomes[1].error) == (code, None)
    assert text in str(outcomes[0].error)
    assert [kind for kind, _ in rows(led)] == ["TopicRecord", "PartitionRecord"]


def test_what_is_only_checked_leaves_no_record(led: Led) -> None:
    """An administrator that tries a change would make it."""
    (outcome,) = finished(led.controller.create_topics([NewTopic("v", 1, 1)], validate_only=True))
    assert outcome.topic.topic_id != bytes(16)
    finished(led.controller.update_features([FeatureUpdate("share.version", 1)], validate_only=True))
    assert_rows(led, [])


def test_more_partitions(led: Led) -> None:
    """They have no settings of their own, and begin as a new topic's do."""
    led.create("m", [1, 2], [2, 3], [3, 1])
    (outcome,) = finished(led.controller.create_partitions([NewPartitions("m", 4, [[2, 1]])]))
    assert outcome.error is None
    assert_rows(led, [partition(3, (2, 1), "m")])
    (outcome,) = finished(led.controller.create_partitions([NewPartitions("m", 5, [[9]])]))
    assert outcome.error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_goes_with_all_that_it_has(led: Led) -> None:
    """One record: partitions and settings go with it."""
    led.create("p", [1, 2], retention_ms="5")
    topic_id = led.written.topics["p"].topic_id
    outcomes = finished(led.controller.delete_topics([topic_id, bytes(range(16))]))
    assert [each.error and each.error.code for each in outcomes] == [None, ErrorCode.UNKNOWN_TOPIC_ID]
    assert_rows(led, [("RemoveTopicRecord", {"topic_id": "gone"})])
    led.create("p", [2, 1])
    assert led.written.topics["p"].configs == {}


# Settings

APPEND, SUBTRACT = EditOperation.APPEND, EditOperation.SUBTRACT
ALTERED: list[tuple[str, tuple[int, str], list[ConfigEdit], bool, int, Rows]] = [
    (
        "set",
        (TOPIC, "a"),
        [ConfigEdit("cleanup.policy", APPEND, "compact"), setting("retention.ms", "5000")],
        False,
        0,
        [config(TOPIC, "a", "cleanup.policy", "delete,compact"), config(TOPIC, "a", "retention.ms", "5000")],
    ),
    (
        "min.insync",
        (TOPIC, "a"),
        [setting("min.insync.replicas", "2")],
        False,
        0,
        [config(TOPIC, "a", "min.insync.replicas", "2"), ("ClearElrRecord", {"topic_name": "a"})],
    ),
    ("same value", (TOPIC, "a"), [setting("retention.ms", "5000")], False, 0, []),
    ("delete", (TOPIC, "a"), [setting("retention.ms", None)], False, 0, [config(TOPIC, "a", "retention.ms", None)]),
    ("delete absent", (TOPIC, "a"), [setting("segment.ms", None)], False, 0, []),
    (
        "broker",
        (BROKER, "1"),
        [setting("log.cleaner.threads", "2")],
        False,
        0,
        [config(BROKER, "1", "log.cleaner.threads", "2")],
    ),
    (
        "broker again",
        (BROKER, "1"),
        [setting("log.cleaner.threads", "2")],
        False,
        0,
        [config(BROKER, "1", "log.cleaner.threads", "2")],
    ),
    (
        "all brokers",
        (BROKER, ""),
        [setting("unclean.leader.election.enable", "false")],
        False,
        0,
        [config(BROKER, "", "unclean.leader.election.enable", "false")],
    ),
    (
        "min.insync of all",
        (BROKER, ""),
        [setting("min.insync.replicas", "2")],
        False,
        0,
        [config(BROKER, "", "min.insync.replicas", "2"), ("ClearElrRecord", {})],
    ),
    ("min.insync of all deleted", (BROKER, ""), [setting("min.insync.replicas", None)], False, 40, []),
    (
        "min.insync of all back",
        (BROKER, ""),
        [setting("min.insync.replicas", "1")],
        False,
        0,
        [config(BROKER, "", "min.insync.replicas", "1"), ("ClearElrRecord", {})],
    ),
    ("min.insync of one", (BROKER, "1"), [setting("min.insync.replicas", "1")], False, 40, []),
    (
        "client metrics",
        (METRICS, "cm"),
        [setting("interval.ms", "1000")],
        False,
        0,
        [config(METRICS, "cm", "interval.ms", "1000")],
    ),
    (
        "group",
        (GROUP, "g"),
        [setting("consumer.session.timeout.ms", "50000")],
        False,
        0,
        [config(GROUP, "g", "consumer.session.timeout.ms", "50000")],
    ),
    ("no topic", (TOPIC, "nope"), [setting("retention.ms", "1")], False, 3, []),
    ("unknown", (TOPIC, "a"), [setting("xx", "1")], False, 40, []),
    ("no number", (BROKER, "x"), [setting("log.cleaner.threads", "1")], False, 42, []),
    ("no broker", (BROKER, "9"), [setting("log.cleaner.threads", "1")], False, 102, []),
    ("append to no list", (TOPIC, "a"), [ConfigEdit("retention.ms", APPEND, "1")], False, 40, []),
    (
        "subtract",
        (TOPIC, "a"),
        [ConfigEdit("cleanup.policy", SUBTRACT, "delete")],
        False,
        0,
        [config(TOPIC, "a", "cleanup.policy", "compact")],
    ),
    (
        "legacy",
        (TOPIC, "a"),
        [setting("retention.ms", "7")],
        True,
        0,
        [
            config(TOPIC, "a", "retention.ms", "7"),
            config(TOPIC, "a", "cleanup.policy", None),
            config(TOPIC, "a", "min.insync.replicas", None),
            ("ClearElrRecord", {"topic_name": "a"}),
        ],
    ),
]


def test_settings(led: Led) -> None:
    """In the order of the script: what one request sets the next one finds."""
    led.create("a", [1, 2, 3])
    for title, (kind, name), edits, is_whole, code, expected in ALTERED:
        error = led.configure(kind, name, *edits, replace=is_whole)
        assert (title, 0 if error is None else int(error.code)) == (title, code)
        assert (title, plain(rows(led))) == (title, plain(expected))


def test_a_change_of_min_insync_replicas_clears_elrs(led: Led) -> None:
    """A replica would be eligible by a number that was smaller."""
    for name in ("a", "b"):
        led.create(name, [1, 2], min_insync_replicas="2")
    led.beat(2, want_fence=True)
    assert [led.partition(name).elr for name in ("a", "b")] == [(2,), (2,)]
    epoch = led.partition("a").partition_epoch
    led.configure(TOPIC, "a", setting("min.insync.replicas", "1"))
    assert [led.partition(name).elr for name in ("a", "b")] == [(), (2,)]
    assert led.partition("a").partition_epoch == epoch + 1
    led.configure(BROKER, "", setting("min.insync.replicas", "2"))
    assert led.partition("b").elr == ()
    assert led.metadata.recorded.topics["b"].partitions[0].elr == ()


def test_without_elrs_nothing_is_cleared() -> None:
    """An older broker could not read the record."""
    led = Led()
    led.lead(bootstrap(elr=0))
    led.serve(1)
    led.create("a", [1], min_insync_replicas="2")
    led.configure(TOPIC, "a", setting("min.insync.replicas", "1"))
    assert_rows(led, [config(TOPIC, "a", "min.insync.replicas", "1")])


# Quotas, ids, features


def test_quotas(led: Led) -> None:
    """Removed ones have no value."""
    user, both = (("user", "u"),), (("client-id", "x"), ("user", None))
    asked = [
        EntityAlteration(user, [QuotaEdit("consumer_byte_rate", 5.0), QuotaEdit("producer_byte_rate", 1000.0)]),
        EntityAlteration(both, [QuotaEdit("request_percentage", 50.0)]),
    ]
    assert set(finished(led.controller.alter_client_quotas(asked)).values()) == {None}
    gone = [
        EntityAlteration(user, [QuotaEdit("producer_byte_rate", None)]),
        EntityAlteration((("user", "w"),), [QuotaEdit("producer_byte_rate", None)]),
    ]
    assert set(finished(led.controller.alter_client_quotas(gone)).values()) == {None}
    found = [
        ([(each.entity_type, each.entity_name) for each in fields["entity"]], fields["key"], fields.get("value", 0.0))
        for _, fields in rows(led)
    ]
    assert found == [
        ([*user], "consumer_byte_rate", 5.0),
        ([*user], "producer_byte_rate", 1000.0),
        ([*both], "request_percentage", 50.0),
        ([*user], "producer_byte_rate", 0.0),
    ]


UP, DOWN = 1, 2
FEATURES: list[tuple[str, list[tuple[str, int, int]], Rows, str]] = [
    ("up", [("share.version", 1, UP)], [level("share.version", 1)], ""),
    ("down", [("share.version", 0, DOWN)], [level("share.version", 0)], ""),
    ("up again", [("share.version", 1, UP)], [level("share.version", 1)], ""),
    ("same", [("share.version", 1, UP)], [level("share.version", 1)], ""),
    (
        "mv down",
        [("metadata.version", 29, DOWN)],
        [],
        "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because it "
        "might delete metadata information.",
    ),
    ("mv same", [("metadata.version", 30, UP)], [level("metadata.version", 30)], ""),
    (
        "elr down",
        [("eligible.leader.replicas.version", 0, DOWN)],
        [level("eligible.leader.replicas.version", 0)],
        "",
    ),
    ("elr up", [("eligible.leader.replicas.version", 1, UP)], [level("eligible.leader.replicas.version", 1)], ""),
    (
        "too high",
        [("group.version", 9, UP)],
        [],
        "Invalid update version 9 for feature group.version. Local controller 3001 only supports versions 0-1",
    ),
    ("group up", [("group.version", 1, UP)], [level("group.version", 1)], ""),
    (
        "down as up",
        [("group.version", 0, UP)],
        [],
        "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without "
        "setting the upgrade type to either safe or unsafe downgrade.",
    ),
    ("one bad of two", [("share.version", 0, DOWN), ("nope", 1, UP)], [], "Invalid update version 1 for feature nope."),
]


def test_features(led: Led) -> None:
    """In the order of the script; one bad update is none for all."""
    for title, asked, expected, text in FEATURES:
        updates = [FeatureUpdate(*each) for each in asked]
        if text:
            with pytest.raises(InvalidUpdateVersionError) as raised:
                finished(led.controller.update_features(updates))
            assert text in str(raised.value), title
        else:
            finished(led.controller.update_features(updates))
        assert (title, plain(rows(led))) == (title, plain(expected))
    assert led.written.features.level("share.version") == 1
    assert led.metadata.recorded.features.chosen == led.written.features.chosen


def test_kraft_version_does_not_go_down(led: Led) -> None:
    """Voters would be read from where they are not any more."""
    chosen = {**led.written.features.chosen, KRAFT_VERSION: 1}
    image = replace(led.written, features=replace(led.written.features, chosen=chosen))
    down = [FeatureUpdate(KRAFT_VERSION, 0, DOWN)]
    text = "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
    with pytest.raises(InvalidUpdateVersionError) as raised:
        feature_update_records(image, down, 3001, (), 1)
    assert str(raised.value) == text
    assert feature_update_records(image, [FeatureUpdate(KRAFT_VERSION, 1)], 3001, (), 1) == []
    with pytest.raises(InvalidUpdateVersionError, match="The quorum itself"):
        feature_update_records(led.written, [FeatureUpdate(KRAFT_VERSION, 1)], 3001, (), 1)


def test_a_level_has_to_be_known_to_all_nodes(led: Led) -> None:
    """A node that cannot read what the level brings would stop."""
    up = [FeatureUpdate("share.version", 1)]
    image = led.written
    old = replace(image.brokers[2], features={**image.brokers[2].features, "share.version": (0, 0)})
    image = replace(image, brokers={**image.brokers, 2: old})
    with pytest.raises(InvalidUpdateVersionError, match="Broker 2 does not support this feature"):
        feature_update_records(image, up, 3001, (), 1)
    old = replace(old, features={**old.features, "share.version": (2, 3)})
    with pytest.raises(InvalidUpdateVersionError, match="Broker 2 only supports versions 2-3"):
        feature_update_records(replace(image, brokers={2: old}), up, 3001, (), 1)
    with pytest.raises(InvalidUpdateVersionError, match=r"\[3002\]"):
        feature_update_records(led.written, up, 3001, (3001, 3002), 1)


def test_elrs_begin_with_min_insync_replicas_of_the_cluster() -> None:
    """With one broker's own value ELRs would count by another number at each of them."""
    led = Led({"min.insync.replicas": "2"})
    led.lead(bootstrap(elr=0))
    led.serve(1)
    led.configure(BROKER, "1", setting("min.insync.replicas", "1"))
    rows(led)
    finished(led.controller.update_features([FeatureUpdate("eligible.leader.replicas.version", 1)]))
    assert_rows(
        led,
        [
            config(BROKER, "", "min.insync.replicas", "2"),
            config(BROKER, "1", "min.insync.replicas", None),
            level("eligible.leader.replicas.version", 1),
        ],
    )


# Moves


def move(led: Led, topic: str, replicas: Sequence[int] | None, *, allow: bool = True) -> int:
    (outcome,) = finished(led.controller.alter_reassignments([Reassignment(at(topic), replicas)], allow))
    return 0 if outcome.error is None else int(outcome.error.code)


def test_moves(led: Led) -> None:
    """Rows 946 to 992 of the script."""
    led.create("mv", [1, 2])
    led.create("mw", [1])
    led.create("mx", [1, 2])
    assert move(led, "mv", [3, 2]) == 0
    assert_rows(
        led,
        [change("mv", replicas=[3, 2, 1], removing_replicas=[1], adding_replicas=[3], directories=[3, 2, 1])],
    )
    error = led.isr("mv", 1, 2, 3)
    assert error is not None
    assert error.code == ErrorCode.NEW_LEADER_ELECTED
    done = {"removing_replicas": [], "adding_replicas": []}
    assert_rows(led, [change("mv", isr=[2, 3], leader=3, replicas=[3, 2], **done, directories=[3, 2])])
    assert move(led, "mw", [2, 3]) == 0
    assert_rows(
        led,
        [change("mw", replicas=[2, 3, 1], removing_replicas=[1], adding_replicas=[2, 3], directories=[2, 3, 1])],
    )
    assert led.isr("mw", 1, 3) is None
    assert_rows(led, [change("mw", isr=[1, 3])])
    led.isr("mw", 1, 3, 2)
    assert_rows(led, [change("mw", isr=[3, 2], leader=2, replicas=[2, 3], **done, directories=[2, 3])])
    assert move(led, "mx", [2]) == 0
    assert_rows(led, [change("mx", isr=[2], leader=2, replicas=[2], directories=[2])])
    assert move(led, "mv", [2, 3]) == 0
    assert_rows(led, [change("mv", replicas=[2, 3], directories=[2, 3])])
    assert move(led, "mv", [2, 3]) == 0
    assert [move(led, "mv", [9]), move(led, "mw", [1, 1]), move(led, "nope", [1]), move(led, "mx", None)] == [
        39,
        39,
        3,
        85,
    ]
    assert move(led, "mv", [1], allow=False) == 38
    assert_rows(led, [])
    outcomes = finished(led.controller.elect_leaders(ElectionType.PREFERRED, [at("mv"), at("mw"), at("nope")]))
    assert [each.error and int(each.error.code) for each in outcomes] == [None, 84, 3]
    assert_rows(led, [change("mv", leader=2)])


def test_a_second_move_while_one_is_under_way(led: Led) -> None:
    """Rows 74 to 80 of the lab of quirks: complete when 4 is in the ISR, though 2 was never in sync."""
    led.serve(4)
    led.create("q4", [1])
    move(led, "q4", [1, 2, 3])
    assert_rows(led, [change("q4", replicas=[1, 2, 3], adding_replicas=[2, 3], directories=[1, 2, 3])])
    move(led, "q4", [1, 2, 4])
    moved = change("q4", replicas=[1, 2, 4, 3], removing_replicas=[3], adding_replicas=[4], directories=[1, 2, 4, 3])
    assert_rows(led, [moved])
    assert led.isr("q4", 1, 4) is None
    done = {"removing_replicas": [], "adding_replicas": []}
    assert_rows(led, [change("q4", isr=[1, 4], leader=1, replicas=[1, 2, 4], **done, directories=[1, 2, 4])])


def test_a_move_that_lowers_the_factor_waits_for_all_that_stay(led: Led) -> None:
    """Rows 63 to 69: a reassignment that ended there would leave one copy."""
    led.serve(4, 5, 6)
    led.create("q1", [1, 2, 3, 4, 5])
    led.isr("q1", 1, 2)
    move(led, "q1", [3, 4, 5, 6])
    rows(led)
    assert led.isr("q1", 1, 2, 6) is None
    assert_rows(led, [change("q1", isr=[1, 2, 6])])


def test_below_min_insync_replicas(led: Led) -> None:
    """Rows 93 to 102: ELRs in ascending order, partitions before the broker."""
    led.create("q6", [1, 2, 3], min_insync_replicas="2")
    led.isr("q6", 1)
    assert_rows(led, [change("q6", isr=[1], eligible_leader_replicas=[2, 3])])
    led.beat(1, want_fence=True)
    fenced = ("BrokerRegistrationChangeRecord", {"broker_id": 1, "broker_epoch": led.epochs[1], "fenced": 1})
    assert_rows(led, [change("q6", isr=[2], leader=2, eligible_leader_replicas=[1, 3]), fenced])


def test_a_broker_dies(led: Led) -> None:
    """Rows 1423 to 1446 of the script."""
    led.create("cfg", [2, 3], [3, 1], min_insync_replicas="2")
    led.create("mw", [2, 3])
    led.create("b1", [3])
    led.create("a", [3, 1, 2])
    led.now += 20
    led.beat(1)
    led.beat(2)
    finished(led.controller.fence_stale())
    epoch = led.epochs[3]
    assert_rows(
        led,
        [
            change("cfg", isr=[2], eligible_leader_replicas=[3]),
            change("cfg", 1, isr=[1], leader=1, eligible_leader_replicas=[3]),
            change("mw", isr=[2]),
            change("b1", isr=[], leader=-1, eligible_leader_replicas=[3], last_known_elr=[3]),
            change("a", isr=[1, 2], leader=1),
            ("BrokerRegistrationChangeRecord", {"broker_id": 3, "broker_epoch": epoch, "fenced": 1}),
        ],
    )


def test_leaders_of_an_unclean_election_recover_until_their_next_isr(led: Led) -> None:
    """A leader that has not recovered would take transactions for whole that are not (KIP-704)."""
    led.create("u", [1, 2], min_insync_replicas="1")
    led.isr("u", 1)
    led.beat(1, want_fence=True)
    rows(led)
    (outcome,) = finished(led.controller.elect_leaders(ElectionType.UNCLEAN, [at("u")]))
    assert outcome.error is None
    expected = change("u", isr=[2], leader=2, leader_recovery_state=1, eligible_leader_replicas=[], last_known_elr=[])
    assert_rows(led, [expected])
    led.beat(1)
    rows(led)
    assert led.isr("u", 2, 1) is None
    ((_, fields),) = rows(led)
    assert fields["isr"] == [2, 1]
    assert fields["leader_recovery_state"] == 0
    # The same ISR, which says that the leader has recovered, is a change as well.
    led.beat(2, want_fence=True)
    led.beat(1, want_fence=True)
    assert directory(1) in led.partition("u").directories
