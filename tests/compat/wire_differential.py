"""Requests made of the field tables, sound and mutated, for every API and version that kbroker and Kafka both serve.

Each request goes to both, in the same order; the decoded answers are compared field by field.  Kafka 4.3.1 is the
reference for what it serves, 3.9.1 for versions that 4 dropped.  `python -m tests.compat.wire_differential` runs it and
writes what came of it: counts for each API and version, and the requests that are answered otherwise.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.handlers import dispatch
from kbroker.protocol.api import ApiKey
from kbroker.protocol.schema import Field, parse_versions
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.schemas import message
from tests.compat.brokers import KbrokerProcess
from tests.compat.old_kafka import OldKafka
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.records.stored import encode_messages
from tests.scenarios.wire import Closed, Wire, struct_fields

RECORD = Path(__file__).parent / "vectors" / "wire_differential.json"
VERSIONS_OF_KAFKA = {"4.3.1": KafkaProcess, "3.9.1": OldKafka}
# Those that answer about the broker itself or what lies on its disks, and those that a node does not survive.
LEFT_OUT = {
    "ApiVersions",
    "DescribeLogDirs",
    "AlterReplicaLogDirs",
    "DescribeConfigs",
    "DescribeCluster",
    "DescribeQuorum",
    "WriteTxnMarkers",
    "UnregisterBroker",
    "UpdateFeatures",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ElectLeaders",
    # Its members wait for each other.
    "JoinGroup",
}
LAST_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
T0 = 1_700_000_000_000
TOPIC, GROUP, ZERO_UUID = "differential", "group", bytes(16)
RECORDS = [Record(at, T0 + at, b"k%d" % at, b"v") for at in range(3)]
# How long a request may take is not what is compared, nor what a broker does with a million partitions.
NEVER_MUTATED = {
    "timeout_ms",
    "max_wait_ms",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "num_partitions",
    "count",
    "transaction_timeout_ms",
}
VALUES: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 5000,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "max_num_offsets": 5,
    "timestamp": -1,
    "replica_id": -1,
    "committed_offset": 2,
    "committed_leader_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "session_epoch": -1,
    "log_start_offset": -1,
    "retention_time_ms": -1,
    "commit_timestamp": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": -1,
    "num_partitions": 1,
    "count": 2,
    "replication_factor": 1,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 6000,
    "protocol_type": "consumer",
    "transaction_timeout_ms": 60_000,
    "response_partition_limit": 2000,
    "resource_type": 2,
    "cleanup_policy": "delete",
    "metadata": b"",
}
NULL_BY_DEFAULT = {
    "transactional_id",
    "group_instance_id",
    "instance_id",
    "configs",
    "cursor",
    "assignments",
    "member_id",
}
# What differs from one broker, or one run, to the next.
MASKED = {
    "throttle_time_ms",
    "cluster_id",
    "host",
    "port",
    "error_message",
    "topic_id",
    "member_id",
    "leader",
    "producer_id",
    "log_append_time_ms",
    "node_endpoints",
    "session_id",
    "brokers",
    "controller_id",
}


class Case(NamedTuple):
    """One request."""

    name: str
    values: dict[str, Any]


def apis(kafka: str) -> Iterator[tuple[str, int]]:
    """(API, version) of what is served and compared with this Kafka."""
    current, old = _ranges("4.3.1"), _ranges("3.9.1")
    for handler in dispatch.served():
        api = ApiKey(handler.api_key)
        name = api.message_name
        if api > LAST_KEY or name in LEFT_OUT:
            continue
        for version in range(handler.min_version, handler.max_version + 1):
            is_current = version in current.get(name, ())
            if is_current if kafka == "4.3.1" else not is_current and version in old.get(name, ()):
                yield name, version


def _ranges(kafka: str) -> dict[str, range]:
    """The versions that a Kafka serves, as its own message definitions have them."""
    table: dict[str, dict[str, str]] = json.loads((RECORD.parent / "served_versions.json").read_text())
    return {name: parse_versions(text) for name, text in table[kafka].items()}


def cases(api: str, version: int) -> Iterator[Case]:
    """A sound request, and that one with one field changed in each of several ways."""
    request = message(f"{api}Request")
    fields = request.schema.fields
    tag = f"{api}-{version}".lower()
    sound = _sound(request, fields, version, tag)
    yield Case("sound", sound)
    yield Case("sound again", sound)
    for number, (path, values) in enumerate(_mutations(request, fields, version, sound, f"{tag}-m")):
        yield Case(f"{path} #{number}", values)


def _sound(request: Any, fields: Any, version: int, tag: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        if version not in parse_versions(field.versions) or field.tagged != "none":
            continue
        found[field.name] = _value_of(request, field, version, tag)
    return found


def _value_of(request: Any, field: Field, version: int, tag: str) -> Any:
    api, name = request.schema.name.removesuffix("Request"), field.name
    nullable = version in parse_versions(field.nullable)
    if name in NULL_BY_DEFAULT:
        if nullable:
            return None
        return [] if field.is_array else ""
    if field.is_struct:
        made = _sound(request, struct_fields(request.schema, field), version, tag)
        return [made] if field.is_array else made
    if field.is_array:
        return [_scalar(api, name, field.item_type, tag)]
    if name == "records":
        return _records(version)
    return VALUES.get(name, _scalar(api, name, field.type, tag))


def _scalar(api: str, name: str, kind: str, tag: str) -> Any:
    if kind == "string":
        if api == "CreateTopics" and name == "name":
            return f"made-{tag}"
        if api in ("DeleteTopics", "CreatePartitions"):
            return f"never-{tag}"
        if name in ("group_id", "key", "coordinator_keys", "groups", "groups_names"):
            # Members of other requests must not keep this one waiting.
            return f"{GROUP}-{tag}"
        if name in ("topic", "name", "resource_name", "topic_names", "topics"):
            return f"{GROUP}-{tag}" if api in ("JoinGroup",) else TOPIC
        return VALUES.get(name, "")
    if kind == "uuid":
        return ZERO_UUID
    if kind == "bool":
        return False
    return b"" if kind == "bytes" else 0


def _records(version: int) -> bytes:
    if version < 3:
        return encode_messages(RECORDS, 0 if version < 2 else 1, 0)
    builder = RecordBatchBuilder(0)
    for record in RECORDS:
        builder.append(record.key, record.value, record.timestamp)
    return bytes(builder.build())


BOUNDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def _mutations(
    request: Any, fields: Any, version: int, sound: Mapping[str, Any], tag: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in fields:
        if field.name not in sound or field.name in NEVER_MUTATED:
            continue
        value = sound[field.name]
        for other in _others(field, version, value):
            yield f"{field.name}={_shown(other)}", {**sound, field.name: other}
        if field.is_struct and value:
            inner = value[0] if field.is_array else value
            nested = struct_fields(request.schema, field)
            for path, made in _mutations(request, nested, version, inner, tag):
                yield f"{field.name}/{path}", {**sound, field.name: [made] if field.is_array else made}


def _others(field: Field, version: int, value: Any) -> Iterator[Any]:
    if version in parse_versions(field.nullable) and value is not None and field.name != "records":
        yield None
    if field.is_array:
        yield []
        if value:
            yield value * 2
    elif field.type in BOUNDS:
        bits = BOUNDS[field.type]
        yield from (each for each in (-1, 0, 1, -2, 2**bits - 1, -(2**bits)) if each != value)
    elif field.type == "string":
        yield from (each for each in ("", "nobody-knows-it", "not a name!", "x" * 300) if each != value)
    elif field.type == "bool":
        yield not value
    elif field.type == "uuid":
        yield bytes(range(16))
    elif field.type in ("bytes", "records"):
        yield b"garbage"
        if field.type == "records":
            yield value[:-1]
            yield value * 2
            yield value[:20] + b"\xff" + value[21:]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 30 else text[:27] + "..."


def ask_all(port: int, wanted: list[tuple[str, int]]) -> dict[str, Any]:
    """The answers by API, version and request."""
    found: dict[str, Any] = {}
    wire = Wire(port, 3)
    _warm_up(wire)
    for api, version in wanted:
        for name, values in cases(api, version):
            try:
                answer = wire.ask(api, version, values)
            except Closed:
                found[f"{api} v{version}: {name}"] = "closed"
                wire = Wire(port, 3)
            except TimeoutError:
                found[f"{api} v{version}: {name}"] = "no answer"
                wire.close()
                wire = Wire(port, 3)
            else:
                fields = message(f"{api}Response").schema.fields
                found[f"{api} v{version}: {name}"] = _plain(message(f"{api}Response").schema, fields, version, answer)
    wire.close()
    return found


def _warm_up(wire: Wire) -> None:
    """A topic, and coordinators that are there."""
    topics = [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}]
    wire.ask("CreateTopics", 5, {"topics": topics, "timeout_ms": 5000})

    def ready() -> bool:
        for kind in (0, 1):
            if wire.ask("FindCoordinator", 2, {"key": "warm-up", "key_type": kind}).error_code:
                return False
        rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        values = {"group_id": "warm-up", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
        topics = [{"name": TOPIC, "partitions": rows}]
        found = wire.ask("OffsetCommit", 2, {**values, "topics": topics}).topics[0].partitions[0]
        made = wire.ask("InitProducerId", 1, {"transactional_id": "warm-up", "transaction_timeout_ms": 60_000})
        return not found.error_code and not made.error_code

    wait_for(ready, "the coordinators")


def _plain(schema: Any, fields: Any, version: int, struct: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        if version not in parse_versions(field.versions):
            continue
        value = getattr(struct, field.name)
        if field.name in MASKED:
            continue
        if field.is_struct and value is not None:
            nested = struct_fields(schema, field)
            if field.is_array:
                value = [_plain(schema, nested, version, each) for each in value]
                value.sort(key=lambda each: json.dumps(each, sort_keys=True))
            else:
                value = _plain(schema, nested, version, value)
        elif isinstance(value, bytes | memoryview):
            value = bytes(value).hex()
        found[field.name] = value
    return found


def compare(folder: Path) -> dict[str, Any]:
    """By API and version: requests in all, and the names of those that are answered otherwise."""
    result: dict[str, Any] = {}
    for kafka, kind in VERSIONS_OF_KAFKA.items():
        wanted = list(apis(kafka))
        reference = kind(folder / f"kafka-{kafka}")
        reference.start()
        try:
            theirs = ask_all(reference.port, wanted)
        finally:
            # Some of the requests keep it from stopping in order.
            reference.kill()
        ours_process = KbrokerProcess(folder / f"kbroker-{kafka}")
        ours_process.start()
        try:
            ours = ask_all(ours_process.port, wanted)
        finally:
            ours_process.stop()
        for api, version in wanted:
            prefix = f"{api} v{version}: "
            names = [name for name in theirs if name.startswith(prefix)]
            other = [name.removeprefix(prefix) for name in names if theirs[name] != ours[name]]
            result[f"{api} v{version}"] = {"kafka": kafka, "requests": len(names), "otherwise": other}
        (folder / f"answers-{kafka}.json").write_text(json.dumps({"kafka": theirs, "kbroker": ours}))
    return result


def table(result: Mapping[str, Any]) -> str:
    """What docs/compatibility.md shows: of each API and version, requests answered alike and in all."""
    rows: dict[str, dict[int, str]] = {}
    for name, row in result.items():
        api, version = name.split(" v")
        mark = "" if row["kafka"] == "4.3.1" else "*"
        alike = row["requests"] - len(row["otherwise"])
        text = f"{version}{mark}" if alike == row["requests"] else f"{version}{mark} ({alike} of {row['requests']})"
        rows.setdefault(api, {})[int(version)] = text
    lines = [f"| {api} | {', '.join(found[each] for each in sorted(found))} |" for api, found in sorted(rows.items())]
    return "\n".join(["| API | versions |", "|---|---|", *lines])


def main() -> None:
    """Run it, and write the record."""
    import sys

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        result = compare(folder)
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(result.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
