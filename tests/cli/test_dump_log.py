"""`kbroker dump-log` on a data directory that Apache Kafka 4.3.1 wrote.

vectors/vec-0: three records with a key and a header, an aborted transaction (offset 3, marker 4) and a committed one
(offset 5, marker 6), with an index entry for every batch; the second segment starts at 4.
vectors/__consumer_offsets-42: group g1: created, joined, committed, reset, deleted.
vectors/__transaction_state-20: transactional id tx-1.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import read_header
from kbroker.cli.storage.dump_log import command
from kbroker.records.batch import RecordBatchBuilder, iterate_records
from kbroker.schemas import message
from kbroker.schemas.internal_records import decode_record

VECTORS = Path(__file__).parent / "vectors"
FIRST, SECOND = "00000000000000000000", "00000000000000000004"


def dump(*arguments: str | Path, status: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(command, ["--json", *map(str, arguments)], standalone_mode=False)
    assert result.exception is None, result.exception
    assert result.return_value == status, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def fields(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in names) for row in rows]


def test_batches_of_a_segment() -> None:
    """Nobody could see what a segment holds."""
    rows = dump(VECTORS / "vec-0" / f"{FIRST}.log")
    assert fields(rows, "base_offset", "position", "size", "producer_id", "is_transactional", "crc", "is_valid") == [
        (0, 0, 76, -1, False, 3365318123, True),
        (1, 76, 76, -1, False, 1589321211, True),
        (2, 152, 76, -1, False, 3777084218, True),
        (3, 228, 78, 0, True, 720176949, True),
    ]


@pytest.mark.parametrize("suffix", [".deleted", ".17.deleted", ".swap", ".cleaned"])
def test_a_segment_on_its_way_out_is_a_segment(tmp_path: Path, suffix: str) -> None:
    """What was deleted by mistake could not be looked at before it is gone for good."""
    for kind in (".log", ".index"):
        shutil.copy(VECTORS / "vec-0" / f"{FIRST}{kind}", tmp_path / f"{FIRST}{kind}{suffix}")
    assert [row["base_offset"] for row in dump(tmp_path) if "base_offset" in row] == [0, 1, 2, 3]


def test_records_of_a_segment() -> None:
    """Keys, values and headers would stay hidden."""
    rows = [row for row in dump("--print-data", VECTORS / "vec-0" / f"{FIRST}.log") if "record" in row]
    assert fields(rows, "record", "timestamp", "key", "value", "headers") == [
        (0, 1700000000000, "k0", "v0", {"h": "x"}),
        (1, 1700000000001, "k1", "v1", {"h": "x"}),
        (2, 1700000000002, "k2", "v2", {"h": "x"}),
        (3, 1700000000010, None, "in-aborted", {}),
    ]


def test_transaction_markers() -> None:
    """A hanging or aborted transaction could not be told from a committed one."""
    rows = [row for row in dump("--deep", VECTORS / "vec-0" / f"{SECOND}.log") if "record" in row]
    assert fields(rows, "record", "control", "coordinator_epoch") == [
        (4, "ABORT", 0),
        (5, None, None),
        (6, "COMMIT", 0),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{FIRST}.index", [{"offset": n, "position": 76 * n} for n in (1, 2, 3)]),
        (f"{SECOND}.index", [{"offset": 5, "position": 78}, {"offset": 6, "position": 158}]),
        (f"{SECOND}.timeindex", [{"timestamp": 1795255201776, "offset": 4}, {"timestamp": 1795255201968, "offset": 6}]),
        (f"{SECOND}.txnindex", [{"producer_id": 0, "first_offset": 3, "last_offset": 4, "last_stable_offset": 5}]),
        ("leader-epoch-checkpoint", [{"leader_epoch": 0, "start_offset": 0}]),
    ],
)
def test_files_beside_segments(name: str, expected: list[dict[str, Any]]) -> None:
    """An index or checkpoint could not be checked by eye."""
    rows = dump(VECTORS / "vec-0" / name)
    assert [{key: value for key, value in row.items() if key != "file"} for row in rows] == expected


def test_producer_snapshots() -> None:
    """Why a producer's sequence is refused could not be found out."""
    (row,) = dump(VECTORS / "vec-0" / f"{SECOND}.snapshot")
    assert (row["producer_id"], row["current_txn_first_offset"], row["last_offset"], row["first_sequence"]) == (
        0,
        3,
        3,
        0,
    )
    assert row["last_timestamp"] == 1700000000010


def test_consumer_offsets_are_decoded() -> None:
    """What a group has committed could not be read from disk."""
    rows = dump("--deep", VECTORS / "__consumer_offsets-42" / f"{FIRST}.log")
    payloads = [row["payload"] for row in rows if "record" in row]
    assert [payload["type"] for payload in payloads] == ["GroupMetadata"] * 2 + ["OffsetCommit"] * 3 + [
        "GroupMetadata"
    ] + ["OffsetCommit"] * 8 + ["GroupMetadata"]
    (member,) = payloads[1]["value"]["members"]
    assert member["client_host"] == "/127.0.0.1"
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assigned_partitions"] == [{"topic": "t", "partitions": [0, 1, 2]}]
    assert payloads[3]["key"] == {"group": "g1", "topic": "t", "partition": 1}
    assert (payloads[3]["value"]["offset"], payloads[3]["value"]["topic_id"]) == (3, "T4Z5w1f1Q9SlnEVfaeQqLw")
    assert payloads[-1]["value"] is None


@pytest.mark.parametrize("claimed", [1, 3, 9, -1])
def test_a_subscription_without_the_fields_of_its_version_is_decoded(claimed: int) -> None:
    """The subscriptions of clients that claim a later version would show as hexadecimal."""
    subscription = claimed.to_bytes(2, "big", signed=True) + bytes.fromhex("00000001 0001 74 ffffffff")
    value = message("GroupMetadataValue")
    group = value(protocol_type="consumer", members=[value.MemberMetadata(member_id="m", subscription=subscription)])
    decoded = decode_record("__consumer_offsets", b"\0\2\0\1g", b"\0\3" + bytes(value.program(3).encode(group)))
    (member,) = decoded["value"]["members"]
    assert member["subscription"]["topics"] == ["t"]


def test_transaction_state_is_decoded() -> None:
    """The state of a transactional id could not be read from disk."""
    rows = dump("--deep", VECTORS / "__transaction_state-20" / f"{FIRST}.log")
    states = [row["payload"]["value"]["transaction_status"] for row in rows if "record" in row]
    assert states[:3] == ["Empty", "Ongoing", "Ongoing"] or states[0] == "Empty"
    assert states[-1] == "CompleteCommit"


def test_a_directory_stands_for_its_files() -> None:
    """Every file would have to be named."""
    files = {Path(row["file"]).name for row in dump(VECTORS / "vec-0")}
    assert f"{FIRST}.log" in files
    assert "partition.metadata" in files


def test_damage_is_shown_where_it_is(tmp_path: Path) -> None:
    """A damaged segment would look sound, or end in a traceback."""
    data = bytearray((VECTORS / "vec-0" / f"{FIRST}.log").read_bytes())
    data[76 + 70] ^= 1
    segment = tmp_path / "t-0" / f"{FIRST}.log"
    segment.parent.mkdir()
    segment.write_bytes(data[:-3])
    rows = dump("--deep", segment, status=1)
    assert [row["is_valid"] for row in rows if "is_valid" in row] == [True, False, True]
    assert rows[-1]["position"] == 228
    assert "no batch" in rows[-1]["error"]


def test_space_allocated_ahead_is_no_damage(tmp_path: Path) -> None:
    """The active segment of a running broker would look damaged."""
    segment = tmp_path / f"{FIRST}.log"
    segment.write_bytes((VECTORS / "vec-0" / f"{FIRST}.log").read_bytes() + bytes(1000))
    assert dump(segment)[-1]["padding_bytes"] == 1000


def test_an_index_that_does_not_fit_its_segment(tmp_path: Path) -> None:
    """A reader would be sent to the wrong place and nobody would see why."""
    for suffix in (".log", ".index"):
        shutil.copy(VECTORS / "vec-0" / f"{FIRST}{suffix}", tmp_path)
    index = tmp_path / f"{FIRST}.index"
    data = bytearray(index.read_bytes())
    data[7] += 1
    index.write_bytes(data)
    rows = dump(index, status=1)
    assert "error" in rows[0]
    assert "error" not in rows[1]


@pytest.mark.parametrize(
    "name", [f"{SECOND}.txnindex", f"{SECOND}.snapshot", "partition.metadata", f"{FIRST}.timeindex"]
)
@given(data=st.data())
def test_no_bytes_end_in_a_traceback(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tool for damaged files would fail on damaged files."""
    path = tmp_path_factory.mktemp("damaged") / name
    original = (VECTORS / "vec-0" / name).read_bytes()
    path.write_bytes(data.draw(st.binary(max_size=80) | st.integers(0, len(original)).map(lambda n: original[:n])))
    result = CliRunner().invoke(command, [str(path)], standalone_mode=False)
    assert result.exception is None


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
def test_no_record_of_an_internal_topic_ends_in_a_traceback(key: bytes, value: bytes | None) -> None:
    """One odd record would hide all that follow it."""
    try:
        decode_record("__consumer_offsets", key, value)
    except ValueError:
        pass


def test_unknown_files_are_wrong_usage(tmp_path: Path) -> None:
    """A file of another kind would be read as something it is not."""
    from kbroker.cli.main import run

    path = tmp_path / "notes.txt"
    path.write_text("x")
    assert run(["dump-log", str(path)]) == 2


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_the_metadata_of_kraft_is_decoded(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who looks why a Kafka does not start would see bytes where its topics are."""
    from kbroker.cli.main import run
    from tests.migration.kafka_data import unpack

    (holder,) = [path for path in unpack(version, tmp_path) if (path / "__cluster_metadata-0").exists()]
    assert run(["dump-log", "--deep", "--json", str(holder / "__cluster_metadata-0"), str(holder)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert not [row for row in rows if "error" in row]
    kinds = {row["payload"]["type"] for row in rows if "payload" in row}
    assert {"TopicRecord", "PartitionRecord", "ConfigRecord", "FeatureLevelRecord"} <= kinds
    named = [row["payload"]["data"]["name"] for row in rows if row.get("payload", {}).get("type") == "TopicRecord"]
    assert "orders" in named
    assert any(row["file"].endswith("bootstrap.checkpoint") and "payload" in row for row in rows)
    assert "LEADER_CHANGE" in {row.get("control") for row in rows}


@given(value=st.none() | st.binary(max_size=60))
def test_no_record_of_the_metadata_log_ends_in_a_traceback(value: bytes | None) -> None:
    """One odd record would hide all that follow it."""
    from kbroker.cli.storage.dump_segment import _contents
    from kbroker.types import CLUSTER_METADATA_TOPIC

    builder = RecordBatchBuilder(0)
    builder.append(None, value, 1_000)
    data = bytes(builder.build())
    info = read_header(data, 0)
    (record,) = iterate_records(data)
    row = _contents(record, info, CLUSTER_METADATA_TOPIC, False)
    assert row.keys() <= {"payload", "error"}


def test_a_file_that_is_not_known_is_left_out_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dump-log DIRECTORY/*` would end at the first file that is somebody else's."""
    from kbroker.cli.main import run

    notes, meta = tmp_path / "a-notes.txt", tmp_path / "meta.properties"
    notes.write_text("x")
    meta.write_text("version=1\n")
    assert run(["dump-log", str(notes), str(meta)]) == 0
    said = capsys.readouterr()
    assert "key: version value: 1" in said.out and str(notes) not in said.out
    assert f"{notes}: left out" in said.err
