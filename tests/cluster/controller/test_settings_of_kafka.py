"""The records of Apache Kafka 4.3.1's active controller for settings, quotas and features, and ours.

The expected rows are what real controllers wrote and answered, as in `test_records_of_kafka`.

Of `kbroker.cluster.controller.broker_configs`, `kbroker.cluster.controller.feature_levels`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.cluster.controller.feature_levels import feature_update_records, kraft_upgrade
from kbroker.cluster.requests import (
    ConfigEdit,
    EditOperation,
)
from kbroker.errors import InvalidUpdateVersionError
from kbroker.metadata.features import KRAFT_VERSION, FeatureUpdate
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from tests.cluster.controller.led import Led, bootstrap, setting
from tests.cluster.controller.written import Rows, assert_rows, config, level, plain, rows
from tests.unbroken import finished

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


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
        kraft_upgrade(image, down)
    assert str(raised.value) == text
    assert feature_update_records(image, [FeatureUpdate(KRAFT_VERSION, 1)], 3001, (), 1) == []
    assert kraft_upgrade(image, [FeatureUpdate(KRAFT_VERSION, 1)]) is None


def test_kraft_version_goes_up_by_the_quorum(led: Led) -> None:
    """No record of the controller says it: it would be shown, and not be so."""
    assert kraft_upgrade(led.written, [FeatureUpdate(KRAFT_VERSION, 1)]) == 1
    assert feature_update_records(led.written, [FeatureUpdate(KRAFT_VERSION, 1)], 3001, (), 1) == []


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
