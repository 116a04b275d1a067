"""What is asked of a broker about changing settings, deleting records, log directories and producers.

The same questions go to Apache Kafka (the answers are in `vectors/kafka-4.3.1-changes.json`) and to kbroker.

python -m tests.handlers.changes PORT [NAME...]     print what the broker on that port answers
python -m tests.handlers.changes PORT --record      and keep it as the record; the broker is to be Apache Kafka
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.compat.waiting import wait_for
from tests.scenarios.batches import T0, Batch
from tests.scenarios.session import Answers, Scenario, Session, run

RECORD = Path(__file__).parent / "vectors" / "kafka-4.3.1-changes.json"
SETTINGS = {"offsets.topic.num.partitions": "5"}
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC_SOURCE = 1

CHANGES: dict[str, Scenario] = {}


def change(function: Scenario) -> Scenario:
    """Register a scenario."""
    CHANGES[function.__name__] = function
    return function


def op(name: str, operation: int = SET, value: str | None = None) -> dict[str, Any]:
    """One operation of IncrementalAlterConfigs."""
    return {"name": name, "config_operation": operation, "value": value}


def resource(name: str, *configs: dict[str, Any], kind: int = TOPIC) -> dict[str, Any]:
    """What is to be changed."""
    return {"resource_type": kind, "resource_name": name, "configs": list(configs)}


def incremental(s: Session, step: str, *resources: dict[str, Any], version: int = 1, **values: Any) -> None:
    """Ask to change some settings."""
    s.ask(step, "IncrementalAlterConfigs", version, resources=list(resources), **values)


def replace(s: Session, step: str, name: str, configs: Mapping[str, str | None], **values: Any) -> None:
    """Ask to replace all settings of a topic."""
    rows = [{"name": key, "value": value} for key, value in configs.items()]
    row = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
    s.ask(step, "AlterConfigs", values.pop("version", 2), resources=[row], **values)


def settled(s: Session, name: str, expected: Mapping[str, str], kind: int = TOPIC, source: int = TOPIC_SOURCE) -> None:
    """Wait until a resource's own settings are these: Kafka answers before its broker has followed."""

    def own() -> dict[str, str]:
        rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        found = s.quietly("DescribeConfigs", 4, resources=rows).results[0].configs
        return {row.name: row.value for row in found if row.config_source == source}

    try:
        wait_for(lambda: own() == expected, "the settings to be changed")
    except Exception as error:
        raise AssertionError(f"{name}: {own()} where {expected} was due") from error


def describe(s: Session, step: str, name: str, *keys: str, kind: int = TOPIC) -> None:
    """Describe some settings with their synonyms."""
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    s.ask(step, "DescribeConfigs", 4, resources=[row], include_synonyms=True)


# -- settings of topics


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
    wait_for(lambda: len(_value(s, name, key).split(",")) == 2, "the list to be changed")
    describe(s, "list", name, key)
    incremental(s, "empty list", resource(name, op("cleanup.policy", SET, "")))
    describe(s, "empty list described", name, "cleanup.policy")


def _value(s: Session, name: str, key: str) -> str:
    rows = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": [key]}]
    return str(s.quietly("DescribeConfigs", 4, resources=rows).results[0].configs[0].value)


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


# -- settings of brokers and others


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
    wait_for(lambda: _value(s, name, "max.message.bytes") == "2000", "the topic to follow")
    describe(s, "followed", name, "max.message.bytes")
    s.produce("too large now", name, big)
    incremental(s, "own", resource(name, op("max.message.bytes", SET, "9000")))
    wait_for(lambda: _value(s, name, "max.message.bytes") == "9000", "the topic's own")
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


# -- records


def delete(s: Session, step: str, *rows: tuple[str, int, int], version: int = 2) -> None:
    """Delete records before an offset: (topic, partition, offset) each."""
    topics: dict[str, list[dict[str, int]]] = {}
    for name, partition, offset in rows:
        topics.setdefault(name, []).append({"partition_index": partition, "offset": offset})
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    s.ask(step, "DeleteRecords", version, topics=asked, timeout_ms=10_000)


def earliest(s: Session, step: str, name: str) -> None:
    """Record the first offset."""
    rows = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    s.ask(step, "ListOffsets", 7, replica_id=-1, topics=rows)


def fetch(s: Session, step: str, name: str, offset: int) -> None:
    """Record what lies from an offset on."""
    rows = [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}]
    s.ask(step, "Fetch", 11, replica_id=-1, max_wait_ms=100, min_bytes=0, max_bytes=1 << 20, topics=rows)


@change
def records_deleted(s: Session) -> None:
    name = "delete-records"
    s.create(name, 2)
    s.fill(name, *[Batch([(b"k", b"v")] * 3) for _ in range(4)])
    for version in range(3):
        delete(s, f"v{version}", (name, 0, version + 1), version=version)
    earliest(s, "start", name)
    fetch(s, "below the start", name, 1)
    fetch(s, "in the middle of a batch", name, 4)
    delete(s, "below the start again", (name, 0, 1))
    delete(s, "at the start", (name, 0, 3))
    delete(s, "past the end", (name, 0, 13))
    delete(s, "negative", (name, 0, -2))
    delete(s, "empty partition at 0", (name, 1, 0))
    delete(s, "empty partition past 0", (name, 1, 1))
    delete(s, "partition that is not", (name, 7, 0))
    delete(s, "negative partition", (name, -1, 0))
    delete(s, "topic that is not", ("delete-never", 0, 0))
    delete(s, "topic of no name", ("", 0, 0))
    delete(s, "two", (name, 0, 5), (name, 1, 9), ("delete-never", 0, 1))
    delete(s, "one twice", (name, 0, 6), (name, 0, 7))
    delete(s, "nothing")
    delete(s, "everything", (name, 0, -1))
    earliest(s, "start at the end", name)
    fetch(s, "at the end", name, 12)
    s.produce("goes on", name, Batch())
    fetch(s, "the next", name, 12)


@change
def records_of_compacted_topics(s: Session) -> None:
    """What only compaction may remove is refused; with the delete policy beside it, it is not."""
    for name, policy in (("compacted", "compact"), ("compacted-too", "compact,delete"), ("kept", "")):
        s.create(f"records-{name}", configs={"cleanup.policy": policy})
        s.fill(f"records-{name}", Batch([(b"k", b"v")] * 3))
        delete(s, name, (f"records-{name}", 0, 2))
    s.coordinator("records-group")
    delete(s, "internal", ("__consumer_offsets", 0, 0))


# -- log directories


def log_dirs(s: Session, step: str, topics: Any, version: int = 5) -> None:
    """Record what lies where; paths and the disk's size are not comparable."""
    answer = s.quietly("DescribeLogDirs", version, topics=topics)
    for row in answer.results:
        assert row.log_dir.startswith("/")
        row.log_dir = "directory"
        if version >= 4:
            assert 0 < row.usable_bytes < row.total_bytes
            row.total_bytes = row.usable_bytes = 1
    from kbroker.schemas import message

    s.record(step, s.normal.answer(message("DescribeLogDirsResponse"), version, answer))


@change
def log_directories(s: Session) -> None:
    s.create("dirs-a", 2)
    s.create("dirs-b")
    s.fill("dirs-a", Batch([(b"k", b"v")] * 3), Batch())
    a, b = {"topic": "dirs-a", "partitions": [0, 1]}, {"topic": "dirs-b", "partitions": [0]}
    for version in range(1, 6):
        log_dirs(s, f"v{version}", [a, b], version)
    log_dirs(s, "one partition", [{"topic": "dirs-a", "partitions": [1]}])
    log_dirs(s, "no partitions", [{"topic": "dirs-a", "partitions": []}])
    log_dirs(s, "partition that is not", [{"topic": "dirs-a", "partitions": [1, 7]}])
    log_dirs(s, "topic that is not", [{"topic": "dirs-never", "partitions": [0]}])
    log_dirs(s, "no topics", [])
    found = s.quietly("DescribeLogDirs", 4, topics=None).results[0].topics
    s.record("all", sorted(row.name for row in found if row.name.startswith("dirs-")))


# -- producers


def producers(s: Session, step: str, name: str, *partitions: int) -> None:
    """Record who writes to a partition."""
    s.ask(step, "DescribeProducers", 0, topics=[{"name": name, "partition_indexes": list(partitions)}])


@change
def active_producers(s: Session) -> None:
    name = "producers"
    s.create(name, 2)
    producers(s, "none", name, 0, 1)
    first, second = s.producer_id(), s.producer_id()
    s.fill(name, Batch([(b"k", b"v")] * 3, producer_id=first, producer_epoch=0, base_sequence=0))
    s.fill(name, Batch(producer_id=first, producer_epoch=0, base_sequence=3, timestamps=[T0 + 50]))
    producers(s, "one", name, 0)
    s.fill(name, Batch(producer_id=second, producer_epoch=4, base_sequence=0))
    s.fill(name, Batch())
    producers(s, "two", name, 0, 1)
    producers(s, "partition that is not", name, 7)
    producers(s, "topic that is not", "producers-never", 0)
    producers(s, "invalid topic", "not a name", 0)
    producers(s, "no partitions", name)
    producers(s, "twice", name, 1, 1)
    s.ask("nothing", "DescribeProducers", 0, topics=[])


def load() -> dict[str, Answers]:
    """Kafka's answers."""
    found: dict[str, Answers] = json.loads(RECORD.read_text())
    return found


def save(answers: Mapping[str, Answers]) -> None:
    """Keep answers, one line per step."""
    parts = []
    for name in sorted(answers):
        steps = [
            f"    {json.dumps(step)}: {json.dumps(value, sort_keys=True)}" for step, value in answers[name].items()
        ]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(steps) + "\n  }")
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    """Show or keep the answers of a running broker."""
    port, wanted = int(sys.argv[1]), [part for part in sys.argv[2:] if part != "--record"]
    answers: dict[str, Answers] = {}
    for name, function in CHANGES.items():
        if not wanted or name in wanted:
            answers[name] = run(function, port)
            print(f"== {name}")
            for step, value in answers[name].items():
                print(f"   {step}: {json.dumps(value, sort_keys=True)}")
    if "--record" in sys.argv:
        save(answers)


if __name__ == "__main__":
    main()
