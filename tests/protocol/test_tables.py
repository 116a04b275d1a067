"""The tables themselves: laziness, and Kafka's own definitions where they are at hand.

Also of `kbroker.schemas.acls`, `kbroker.schemas.api_versions`, `kbroker.schemas.cluster`, `kbroker.schemas.configs`,
`kbroker.schemas.consumer_group_records`, `kbroker.schemas.consumer_groups`, `kbroker.schemas.consumer_protocol`,
`kbroker.schemas.control_records`, `kbroker.schemas.controller`, `kbroker.schemas.fetch`, `kbroker.schemas.groups`,
`kbroker.schemas.headers`, `kbroker.schemas.list_offsets`, `kbroker.schemas.log_dirs`, `kbroker.schemas.metadata`,
`kbroker.schemas.metadata_records`, `kbroker.schemas.offset_records`, `kbroker.schemas.offsets`,
`kbroker.schemas.producer_snapshot`, `kbroker.schemas.quotas`, `kbroker.schemas.raft`,
`kbroker.schemas.reassignments`, `kbroker.schemas.remote_log_records`, `kbroker.schemas.sasl`,
`kbroker.schemas.share_group_records`, `kbroker.schemas.share_groups`, `kbroker.schemas.share_state`,
`kbroker.schemas.streams_group_records`, `kbroker.schemas.streams_groups`,
`kbroker.schemas.telemetry`, `kbroker.schemas.topics`, `kbroker.schemas.transaction_records`,
`kbroker.schemas.transactions`, `kbroker.schemas.zookeeper_control`.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from kbroker.protocol.schema import NATURAL, Field, SharedStruct, parse_versions
from kbroker.schemas import families, family_messages, family_of, schema
from tests.protocol.names import plain

# Kafka's JSON definitions are no part of this repository; KAFKA_SCHEMAS names a folder of them.
DEFINITIONS = pathlib.Path(
    os.environ.get("KAFKA_SCHEMAS", pathlib.Path(__file__).parents[3] / "shared" / "kafka" / "schemas")
)
# In the tables but not in 4.3's definitions: what older versions had.
DROPPED = {
    "ListOffsetsRequest": {"max_num_offsets"},
    "ListOffsetsResponse": {"old_style_offsets"},
    "DescribeConfigsResponse": {"is_default"},
    "OffsetCommitRequest": {"commit_timestamp"},
    "AlterPartitionRequest": {"topic_name"},
    "AlterPartitionResponse": {"topic_name"},
}


def test_every_message_is_found_in_its_family() -> None:
    """A handler that asks for a message would fail at the first request."""
    for family in families():
        for table in family_messages(family):
            assert family_of(table.name) == family
            assert schema(table.name) is table


def test_one_familys_tables_are_imported_without_the_others() -> None:
    """Start-up would pay in time and memory for tables that nobody uses."""
    script = (
        "import sys; from kbroker.schemas import message; message('ProduceRequest').program(9);"
        "print(sorted(m for m in sys.modules if m.startswith('kbroker.schemas.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kbroker.schemas.families', 'kbroker.schemas.produce']"


def test_version_ranges_read_as_kafka_writes_them() -> None:
    """A field would be in the wrong versions."""
    assert list(parse_versions("3")) == [3]
    assert list(parse_versions("2-4")) == [2, 3, 4]
    assert list(parse_versions("none")) == []
    assert 5 in parse_versions("5+") and 4 not in parse_versions("5+")


def definitions() -> dict[str, dict[str, Any]]:
    found = {}
    paths = [*DEFINITIONS.glob("*.json"), *DEFINITIONS.glob("internal/**/*.json")]
    for path in paths:
        definition = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
        if definition["validVersions"] != "none":
            found[definition["name"]] = definition
    return found


def same_default(field: Field, described: Any) -> bool:
    """`described` is Kafka's text: nothing for the natural default, a number in decimal or hex, true, null, a word."""
    if field.default is None:
        return bool(described == "null")
    if field.default is NATURAL:
        return described in (None, "", "0", "false", False, 0) or int(str(described), 0) == 0
    if isinstance(field.default, bool):
        return str(field.default).lower() == str(described).lower()
    if isinstance(field.default, int):
        return field.default == int(str(described), 0)
    return bool(field.default == described)


def assert_fields(name: str, fields: tuple[Field, ...], described: list[dict[str, Any]], parent: str) -> None:
    kept = [field for field in fields if field.name not in DROPPED.get(name, set())]
    assert [plain(field.name) for field in kept] == [plain(row["name"]) for row in described], name
    for field, row in zip(kept, described, strict=True):
        versions = row.get("versions") or row.get("taggedVersions") or parent
        where = f"{name}.{field.name}"
        assert field.type == row["type"], where
        low, high = parse_versions(field.versions)[0], parse_versions(field.versions)[-1]
        wanted = parse_versions(versions)
        assert (low <= wanted[0], high) == (True, wanted[-1]), where
        assert field.nullable == row.get("nullableVersions", "none"), where
        assert (field.tag, field.tagged) == (
            None if row.get("tag") is None else int(row["tag"]),
            row.get("taggedVersions", "none"),
        ), where
        assert field.ignorable == bool(row.get("ignorable")), where
        assert field.flexible == row.get("flexibleVersions", ""), where
        assert same_default(field, row.get("default")), where
        assert bool(field.fields) == bool(row.get("fields")), where
        assert_fields(name, field.fields, row.get("fields", []), versions)


def test_rows_are_those_of_kafkas_definitions() -> None:
    """A wrong row is a wrong byte on the wire or on disk."""
    if not DEFINITIONS.is_dir():
        pytest.skip("Kafka's message definitions are not at hand; set KAFKA_SCHEMAS to a folder of them")
    described = definitions()
    tables = {table.name: table for family in families() for table in family_messages(family)}
    assert set(described) <= set(tables)
    for name, definition in described.items():
        table = tables[name]
        wanted = parse_versions(definition["validVersions"])
        assert (table.min_version <= wanted[0], table.max_version) == (True, wanted[-1]), name
        assert table.flexible == definition.get("flexibleVersions", "none"), name
        assert table.kind in (definition["type"], "data"), name
        if table.kind != "data":
            assert table.api_key == definition["apiKey"], name
        assert_fields(name, table.fields, definition["fields"], f"{table.min_version}+")
        commons = {common["name"]: common for common in definition.get("commonStructs", [])}
        assert {shared.name for shared in table.structs} == set(commons), name
        for shared in table.structs:
            assert isinstance(shared, SharedStruct)
            assert_fields(name, shared.fields, commons[shared.name]["fields"], f"{table.min_version}+")
