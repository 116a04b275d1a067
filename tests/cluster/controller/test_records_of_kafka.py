"""The records of Apache Kafka 4.3.1's active controller for scripted requests, and ours for the same ones.

The expected rows are what real controllers wrote (three brokers of one directory each, metadata.version 30, ELR on) and
answered; ids, directories, random placements and the order of maps are ours.

Of `kbroker.metadata.delta_records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.cluster.requests import (
    ElectionType,
    NewPartitions,
    NewTopic,
    Reassignment,
)
from kbroker.error_codes import ErrorCode
from kbroker.metadata.features import FeatureUpdate
from tests.cluster.controller.led import Led, at, directory
from tests.cluster.controller.written import assert_rows, change, config, partition, rows
from tests.unbroken import finished


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


# Topics


def test_a_topic_with_settings(led: Led) -> None:
    """A standby would take the settings of one topic for those of another, or none."""
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "2", "retention.ms": "1000"}
    new = NewTopic("cfg", assignments=[(0, (2, 3)), (1, (3, 1))], configs=configs)
    (outcome,) = finished(led.controller.create_topics([new]))
    assert outcome.error is None
    expected = [
        ("TopicRecord", {"name": "cfg", "topic_id": "cfg"}),
        *(config(2, "cfg", *each) for each in configs.items()),
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
    done: dict[str, Any] = {"removing_replicas": [], "adding_replicas": []}
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
    done: dict[str, Any] = {"removing_replicas": [], "adding_replicas": []}
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
