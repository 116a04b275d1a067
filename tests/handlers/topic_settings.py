"""What is asked of a broker about changing settings of topics (`tests.handlers.changes`)."""

from __future__ import annotations

from tests.compat.waiting import wait_for
from tests.handlers.changes import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    describe,
    incremental,
    op,
    replace,
    resource,
    settled,
    shown,
)
from tests.scenarios.batches import T0, Batch
from tests.scenarios.session import Session


@change
def topic_settings_in_each_version(s: Session) -> None:
    s.create("alter-versions")
    for version in range(2):
        row = resource("alter-versions", op("retention.ms", SET, f"{version + 1}000"))
        incremental(s, f"incremental v{version}", row, version=version)
        settled(s, "alter-versions", {"retention.ms": f"{version + 1}000"})
    describe(s, "described", "alter-versions", "retention.ms")
    for version in range(3):
        replace(s, f"alter v{version}", "alter-versions", {"flush.messages": f"{version + 1}"}, version=version)
        settled(s, "alter-versions", {"flush.messages": f"{version + 1}"})
    describe(s, "replaced", "alter-versions", "flush.messages", "retention.ms")


@change
def topic_settings_set_and_deleted(s: Session) -> None:
    name = "alter-topic"
    s.create(name, configs={"segment.bytes": "2000000"})
    own = {"retention.ms": "-1", "segment.bytes": "2000000"}
    incremental(s, "nothing", resource(name))
    incremental(s, "no resources")
    incremental(s, "the same", resource(name, op("retention.ms", SET, "-1")))
    incremental(s, "validated only", resource(name, op("retention.ms", SET, "5")), validate_only=True)
    incremental(s, "validated and wrong", resource(name, op("retention.ms", SET, "-5")), validate_only=True)
    settled(s, name, own)
    incremental(s, "two", resource(name, op("flush.ms", SET, "9"), op("retention.ms", DELETE)))
    settled(s, name, {"segment.bytes": "2000000", "flush.ms": "9"})
    incremental(s, "delete what is not set", resource(name, op("retention.ms", DELETE)))
    incremental(s, "delete with a value", resource(name, op("flush.ms", DELETE, "7")))
    settled(s, name, {"segment.bytes": "2000000"})
    incremental(s, "padded", resource(name, op("flush.ms", SET, " 12 ")))
    describe(s, "padding", name, "flush.ms")
    incremental(s, "lag", resource(name, op("min.compaction.lag.ms", SET, "100")))
    incremental(s, "lag the wrong way round", resource(name, op("max.compaction.lag.ms", SET, "5")))


@change
def topic_settings_that_are_lists(s: Session) -> None:
    name = "alter-lists"
    s.create(name)
    own = {"retention.ms": "-1"}
    for step, key, operation, value, expected in (
        ("append to the default", "cleanup.policy", APPEND, "compact", {"cleanup.policy": "delete,compact"}),
        ("append what is there", "cleanup.policy", APPEND, "compact", {"cleanup.policy": "delete,compact"}),
        ("subtract", "cleanup.policy", SUBTRACT, "delete", {"cleanup.policy": "compact"}),
        ("subtract what is not there", "cleanup.policy", SUBTRACT, "delete", {"cleanup.policy": "compact"}),
        ("append two", "cleanup.policy", APPEND, "delete,compact", {"cleanup.policy": "compact,delete"}),
        ("subtract two", "cleanup.policy", SUBTRACT, "delete,compact", None),
        ("append a wrong one", "cleanup.policy", APPEND, "no-such", None),
        ("append nothing", "cleanup.policy", APPEND, "", None),
        ("append null", "cleanup.policy", APPEND, None, None),
        ("subtract null", "cleanup.policy", SUBTRACT, None, None),
        ("append to a number", "retention.ms", APPEND, "5", None),
        ("subtract from a number", "retention.ms", SUBTRACT, "5", None),
        ("append to what is not", "no.such", APPEND, "5", None),
    ):
        incremental(s, step, resource(name, op(key, operation, value)))
        if expected:
            settled(s, name, {**own, **expected})
    describe(s, "described", name, "cleanup.policy")
    key = "leader.replication.throttled.replicas"
    incremental(s, "subtract from an empty default", resource(name, op(key, SUBTRACT, "0:1")))
    incremental(s, "append to an empty default", resource(name, op(key, APPEND, "0:1")))
    incremental(s, "append a further one", resource(name, op(key, APPEND, "1:1, 2:1")))
    incremental(s, "subtract one", resource(name, op(key, SUBTRACT, "0:1")))
    wait_for(lambda: len(shown(s, name, key).split(",")) == 2, "the list to be changed")
    describe(s, "list", name, key)
    incremental(s, "empty list", resource(name, op("cleanup.policy", SET, "")))
    describe(s, "empty list described", name, "cleanup.policy")


@change
def topic_settings_that_are_wrong(s: Session) -> None:
    name = "alter-wrong"
    s.create(name)
    for key, value in (
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("segment.bytes", "1"),
        ("cleanup.policy", "never"),
        ("compression.type", "brotli"),
        ("preallocate", "maybe"),
        ("min.cleanable.dirty.ratio", "2"),
        ("max.message.bytes", "99999999999"),
        ("no.such.setting", "1"),
        ("log.retention.ms", "1"),
        ("remote.storage.enable", "true"),
        ("", "1"),
    ):
        incremental(s, f"{key}={value}", resource(name, op(key, SET, value)))
    incremental(s, "null", resource(name, op("retention.ms", SET, None)))
    incremental(s, "two nulls", resource(name, op("retention.ms", SET), op("flush.ms", SET)))
    incremental(s, "unknown operation", resource(name, op("retention.ms", 9, "1")))
    incremental(s, "negative operation", resource(name, op("retention.ms", -1, "1")))
    incremental(s, "delete an unknown one", resource(name, op("no.such.setting", DELETE)))
    incremental(s, "a key twice", resource(name, op("flush.ms", SET, "1"), op("flush.ms", DELETE)))
    incremental(s, "a topic twice", resource(name, op("flush.ms", SET, "1")), resource(name, op("flush.ms", DELETE)))
    incremental(s, "unknown topic", resource("alter-never", op("flush.ms", SET, "1")))
    incremental(s, "unknown topic without change", resource("alter-never"))
    incremental(s, "invalid topic", resource("not a name", op("flush.ms", SET, "1")))
    incremental(s, "nameless topic", resource("", op("flush.ms", SET, "1")))
    incremental(s, "one good one bad setting", resource(name, op("flush.ms", SET, "1"), op("retention.ms", SET, "x")))
    other = "alter-wrong-other"
    s.create(other)
    incremental(
        s, "one good one bad topic", resource(name, op("flush.ms", SET, "x")), resource(other, op("flush.ms", SET, "6"))
    )
    settled(s, other, {"retention.ms": "-1", "flush.ms": "6"})
    settled(s, name, {"retention.ms": "-1"})


@change
def topic_settings_replaced(s: Session) -> None:
    name = "alter-all"
    s.create(name)
    replace(s, "validated only", name, {"flush.ms": "5"}, validate_only=True)
    replace(s, "two", name, {"flush.ms": "5", "retention.ms": "7"})
    settled(s, name, {"flush.ms": "5", "retention.ms": "7"})
    replace(s, "wrong", name, {"flush.ms": "5", "retention.ms": "x"})
    replace(s, "unknown setting", name, {"no.such": "5"})
    replace(s, "null", name, {"flush.ms": None})
    replace(s, "two nulls", name, {"flush.ms": None, "retention.ms": None})
    replace(s, "lags the wrong way round", name, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"})
    replace(s, "unknown topic", "alter-never", {"flush.ms": "5"})
    replace(s, "invalid topic", "not a name", {"flush.ms": "5"})
    twice = [{"name": "flush.ms", "value": "1"}, {"name": "flush.ms", "value": "2"}]
    row = {"resource_type": TOPIC, "resource_name": name, "configs": twice}
    s.ask("a key twice", "AlterConfigs", 2, resources=[row])
    row = {"resource_type": TOPIC, "resource_name": name, "configs": twice[:1]}
    s.ask("a topic twice", "AlterConfigs", 2, resources=[row, row])
    settled(s, name, {"flush.ms": "5", "retention.ms": "7"})
    replace(s, "by nothing", name, {})
    settled(s, name, {})


@change
def topic_settings_take_effect(s: Session) -> None:
    """A changed setting rules the next batch."""
    name = "alter-effect"
    s.create(name)
    big = Batch([(b"k", b"x" * 3000)])
    s.produce("fits", name, big)
    incremental(s, "smaller", resource(name, op("max.message.bytes", SET, "2000")))
    settled(s, name, {"retention.ms": "-1", "max.message.bytes": "2000"})
    s.produce("too large now", name, big)
    incremental(s, "back", resource(name, op("max.message.bytes", DELETE)))
    settled(s, name, {"retention.ms": "-1"})
    s.produce("fits again", name, big)
    incremental(s, "append time", resource(name, op("message.timestamp.type", SET, "LogAppendTime")))
    settled(s, name, {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"})
    s.produce("with the broker's time", name, Batch(timestamps=[T0]))
    incremental(s, "compacted", resource(name, op("cleanup.policy", SET, "compact")))
    settled(s, name, {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"})
    s.produce("without a key", name, Batch([(None, b"v")]))


@change
def topic_settings_that_are_long(s: Session) -> None:
    """A value has a limit, also one that grows by appending."""
    name, key = "alter-longest", "leader.replication.throttled.replicas"
    s.create(name)
    first = ",".join(f"{number}:1" for number in range(10_000, 12_500))
    second = ",".join(f"{number}:1" for number in range(20_000, 22_500))
    incremental(s, "long", resource(name, op(key, SET, first)))
    incremental(s, "longer by appending", resource(name, op(key, APPEND, second)))
    settled(s, name, {"retention.ms": "-1", key: first})
    first += f",{'9' * (32_765 - len(first) - 1)}:1"
    incremental(s, "as long as may be", resource(name, op(key, SET, first)))
    settled(s, name, {"retention.ms": "-1", key: first})
    incremental(s, "by one more", resource(name, op(key, APPEND, "0:1")))
