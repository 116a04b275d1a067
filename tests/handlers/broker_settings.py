"""What is asked of a broker about changing its own settings and loggers (`tests.handlers.changes`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.waiting import wait_for
from tests.handlers.changes import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    SUBTRACT,
    change,
    describe,
    incremental,
    op,
    replace,
    resource,
    settled,
    shown,
)
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session


@change
def settings_of_the_broker(s: Session) -> None:
    for step, name in (("all", ""), ("one", "1")):
        source = 3 if name == "" else 2
        row = {"kind": BROKER}
        key = "log.retention.ms"
        incremental(s, f"{step}: set", resource(name, op("log.retention.ms", SET, "777000"), **row))
        wait_for(partial(_broker_has, s, name, key, source), "the setting")
        describe(s, f"{step}: described", name, "log.retention.ms", kind=BROKER)
        incremental(
            s,
            f"{step}: validated only",
            resource(name, op("log.segment.bytes", SET, "5000000"), **row),
            validate_only=True,
        )
        incremental(s, f"{step}: unset", resource(name, op("log.retention.ms", DELETE), **row))
        wait_for(partial(_broker_has_not, s, name, key, source), "the setting to go")
        incremental(s, f"{step}: wrong value", resource(name, op("log.retention.ms", SET, "x"), **row))
        incremental(s, f"{step}: too small", resource(name, op("log.segment.bytes", SET, "1"), **row))
        incremental(s, f"{step}: read-only", resource(name, op("log.dirs", SET, "/tmp/x"), **row))
        incremental(
            s, f"{step}: two read-only", resource(name, op("node.id", SET, "7"), op("num.partitions", SET, "7"), **row)
        )
        incremental(s, f"{step}: unset read-only", resource(name, op("num.partitions", DELETE), **row))
        incremental(s, f"{step}: null", resource(name, op("log.retention.ms", SET), **row))
        incremental(
            s, f"{step}: twice", resource(name, op("log.retention.ms", SET, "1"), op("log.retention.ms", DELETE), **row)
        )
        incremental(s, f"{step}: number", resource(name, op("log.retention.ms", APPEND, "1"), **row))
    incremental(s, "one: per broker", resource("1", op("max.connections.per.ip", SET, "500000"), kind=BROKER))
    incremental(s, "one: per broker unset", resource("1", op("max.connections.per.ip", DELETE), kind=BROKER))
    incremental(s, "all: append", resource("", op("log.cleanup.policy", APPEND, "compact"), kind=BROKER))
    wait_for(lambda: "compact" in _broker_value(s, "", "log.cleanup.policy"), "the list")
    describe(s, "all: list", "", "log.cleanup.policy", kind=BROKER)
    incremental(s, "all: list unset", resource("", op("log.cleanup.policy", DELETE), kind=BROKER))
    incremental(s, "another broker", resource("99", op("log.retention.ms", SET, "1"), kind=BROKER))
    incremental(s, "no number", resource("one", op("log.retention.ms", SET, "1"), kind=BROKER))


def _broker_rows(s: Session, name: str, key: str) -> Any:
    rows = [{"resource_type": BROKER, "resource_name": name, "configuration_keys": [key]}]
    return s.quietly("DescribeConfigs", 4, resources=rows).results[0].configs


def _broker_value(s: Session, name: str, key: str) -> str:
    return next((str(row.value) for row in _broker_rows(s, name, key)), "")


def _broker_has(s: Session, name: str, key: str, source: int) -> bool:
    return any(row.config_source == source for row in _broker_rows(s, name, key))


def _broker_has_not(s: Session, name: str, key: str, source: int) -> bool:
    return not _broker_has(s, name, key, source)


@change
def settings_for_all_brokers_reach_topics(s: Session) -> None:
    """A topic without a setting of its own follows what is set for all brokers."""
    name = "alter-follows"
    s.create(name)
    big = Batch([(b"k", b"x" * 3000)])
    incremental(s, "smaller", resource("", op("message.max.bytes", SET, "2000"), kind=BROKER))
    wait_for(lambda: shown(s, name, "max.message.bytes") == "2000", "the topic to follow")
    describe(s, "followed", name, "max.message.bytes")
    s.produce("too large now", name, big)
    incremental(s, "own", resource(name, op("max.message.bytes", SET, "9000")))
    wait_for(lambda: shown(s, name, "max.message.bytes") == "9000", "the topic's own")
    describe(s, "its own first", name, "max.message.bytes")
    s.produce("fits its own", name, big)
    incremental(s, "back", resource("", op("message.max.bytes", DELETE), kind=BROKER))
    wait_for(lambda: not _broker_rows(s, "", "message.max.bytes"), "the setting to go")


@change
def settings_of_other_things(s: Session) -> None:
    incremental(s, "unknown kind", resource("x", op("a", SET, "1"), kind=77))
    incremental(s, "kind zero", resource("x", op("a", SET, "1"), kind=0))
    incremental(s, "logger of another broker", resource("99", op("root", SET, "INFO"), kind=BROKER_LOGGER))
    incremental(s, "unknown logger", resource("1", op("no.such.logger", SET, "INFO"), kind=BROKER_LOGGER))
    incremental(s, "wrong level", resource("1", op("root", SET, "LOUD"), kind=BROKER_LOGGER))
    row = {"resource_type": 77, "resource_name": "x", "configs": [{"name": "a", "value": "1"}]}
    s.ask("replace unknown kind", "AlterConfigs", 2, resources=[row])
    logger = {"kind": BROKER_LOGGER}
    incremental(s, "logger append", resource("1", op("root", APPEND, "INFO"), **logger))
    incremental(s, "logger subtract", resource("1", op("root", SUBTRACT, "INFO"), **logger))
    incremental(s, "root logger unset", resource("1", op("root", DELETE), **logger))
    incremental(s, "loggers of all brokers", resource("", op("root", SET, "INFO"), **logger))
    incremental(s, "logger null", resource("1", op("root", SET), **logger))
    incremental(s, "logger set", resource("1", op("root", SET, "WARN"), **logger), validate_only=True)
    row = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [{"name": "root", "value": "INFO"}]}
    s.ask("replace loggers", "AlterConfigs", 2, resources=[row])


@change
def settings_of_the_broker_replaced(s: Session) -> None:
    changes: tuple[dict[str, str], ...] = (
        {"log.retention.ms": "5000", "log.roll.ms": "6000"},
        {"log.roll.ms": "7000"},
        {},
    )
    for number, configs in enumerate(changes):
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        row = {"resource_type": BROKER, "resource_name": "1", "configs": rows}
        s.ask(f"change {number}", "AlterConfigs", 2, resources=[row])
        settled(s, "1", configs, BROKER, 2)
    row = {"resource_type": BROKER, "resource_name": "1", "configs": [{"name": "log.dirs", "value": "/tmp"}]}
    s.ask("read-only", "AlterConfigs", 2, resources=[row])
    incremental(s, "of one broker only", resource("", op("cordoned.log.dirs", SET, "/tmp"), kind=BROKER))


@change
def first_error_of_several(s: Session) -> None:
    """Which error is told when a change is wrong in two ways."""
    s.create("twice-wrong")
    incremental(s, "unknown topic and wrong value", resource("twice-never", op("flush.ms", SET, "x")))
    incremental(s, "unknown topic and no list", resource("twice-never", op("flush.ms", APPEND, "x")))
    incremental(s, "invalid topic and wrong value", resource("not a name", op("flush.ms", SET, "x")))
    incremental(s, "invalid topic and no list", resource("not a name", op("flush.ms", APPEND, "x")))
    incremental(s, "nameless topic and no list", resource("", op("flush.ms", APPEND, "x")))
    incremental(s, "another broker and wrong value", resource("99", op("log.retention.ms", SET, "x"), kind=BROKER))
    incremental(s, "another broker and null", resource("99", op("log.retention.ms", SET), kind=BROKER))
    incremental(s, "unknown kind and null", resource("x", op("a", SET), kind=77))
    incremental(s, "twice and null", resource("twice-wrong", op("flush.ms", SET), op("flush.ms", SET)))
    replace(s, "replaced: unknown topic and wrong value", "twice-never", {"flush.ms": "x"})
    replace(s, "replaced: invalid topic and wrong value", "not a name", {"flush.ms": "x"})
    wrong = op("log.retention.ms", SET, "x")
    incremental(s, "read-only and wrong value", resource("", op("log.dirs", SET, "/x"), wrong, kind=BROKER))
    incremental(s, "append to read-only", resource("", op("num.partitions", APPEND, "1"), kind=BROKER))
    incremental(s, "append to a read-only list", resource("", op("log.dirs", APPEND, "/x"), kind=BROKER))
