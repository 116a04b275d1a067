"""Entries of text files across splits, the order of files, and mapping files: all without a Spark session."""

from __future__ import annotations

import io
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kbroker.replay.traces import TraceError, bundled, find_mapping, parse_mapping
from kbroker.replay.traces.entries import ORPHAN, TOO_LONG, EntryRule, read_entries
from kbroker.replay.traces.errors import reason_of
from kbroker.replay.traces.files import plan_files, rotation_order

pytestmark = pytest.mark.spark

EVENT = EntryRule(opening=r"^\[")
PIECES = [b"[ab\n", b"[\r\n", b"\n", b"x", b"more\n", b"[" + b"long" * 5 + b"\n", b'"', b'a,"b\n']
Entries = list[tuple[int, bytes, str | None]]


def entries(data: bytes, rule: EntryRule, split: int, chunk: int) -> Entries:
    """What all splits of `data` give, one after the other; bytes of problems are left out: they may be cut."""
    found: Entries = []
    for start in range(0, max(1, len(data)), split):
        stream = io.BytesIO(data)
        stream.seek(max(0, start - 1))
        for entry in read_entries(stream, start, min(start + split, len(data)), rule, chunk):
            found.append((entry.position, b"" if entry.problem else entry.data, entry.problem))
    return found


@settings(deadline=None, max_examples=300)
@given(
    data=st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join),
    rule=st.sampled_from([EntryRule(), EVENT, EntryRule(limit=10), EntryRule(opening=r"^\[", limit=10)]),
    split=st.integers(1, 40),
    chunk=st.integers(1, 40),
)
def test_splits_give_each_entry_once(data: bytes, rule: EntryRule, split: int, chunk: int) -> None:
    """An entry that crosses the border of two tasks would be lost, doubled or torn."""
    assert entries(data, rule, split, chunk) == entries(data, rule, 1 << 30, 1 << 20)


@settings(deadline=None, max_examples=100)
@given(
    lines=st.lists(st.binary(max_size=8).filter(lambda line: not set(line) & set(b"\n\r\xef"))),
    end=st.booleans(),
)
def test_lines_have_their_places(lines: list[bytes], end: bool) -> None:
    """A malformed row could not be found in its file again, and sequences would not be unique."""
    data = b"\n".join(lines) + (b"\n" if end and lines else b"")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    wanted = [(start, line, None) for start, line in zip(starts, lines, strict=False)]
    assert entries(data, EntryRule(), 7, 3) == [one for one in wanted if one[0] < len(data)]


def test_an_event_keeps_its_lines() -> None:
    """A stack trace would come out as rows of its own, without a time."""
    data = b"at lost\n[1] a\n\tat one\n\n\tat two\r\n[2] b"
    assert entries(data, EVENT, 1 << 20, 5) == [
        (0, b"", ORPHAN), (8, b"[1] a\n\tat one\n\n\tat two", None), (len(data) - 5, b"[2] b", None),
    ]  # fmt: skip


def test_an_entry_over_the_limit_is_passed_over() -> None:
    """One huge row would fill an executor's memory, or hide the rows after it."""
    data = b"a\n" + b"x" * 1000 + b"\nb\n"
    assert entries(data, EntryRule(limit=100), 64, 16) == [(0, b"a", None), (2, b"", TOO_LONG), (1003, b"b", None)]


def test_a_line_break_in_quotes_ends_no_row() -> None:
    """A CSV field with a line break would tear its row in two."""
    data = b'a,"1\n2"\nb,"x""y\n"\n'
    assert [entry[1] for entry in entries(data, EntryRule(quoted=True), 1 << 20, 4)] == [b'a,"1\n2"', b'b,"x""y\n"']


def test_rotated_logs_come_in_the_order_they_were_written() -> None:
    """The newest file of a log would be replayed before its history."""
    names = ["s.log", "s.log.2016-12-19-16", "s.log.10", "s.log.2016-12-18-23", "s.log.2.gz", "r.log", "s.csv"]
    wanted = ["r.log", "s.log.2016-12-18-23", "s.log.2016-12-19-16", "s.log.10", "s.log.2.gz", "s.log", "s.csv"]
    assert sorted((f"d/{name}" for name in names), key=rotation_order) == [f"d/{name}" for name in wanted]


@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=8), split=st.integers(1, 60))
def test_splits_cover_files(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], split: int) -> None:
    """Bytes of a file would be read by no task, or by two."""
    folder = tmp_path_factory.mktemp("files")
    for number, size in enumerate(sizes):
        (folder / f"{number}.txt").write_bytes(b"x" * size)
    plan = plan_files([str(folder)], 2, whole=False, split_bytes=split)
    covered: dict[str, list[tuple[int, int]]] = {}
    for part in map(plan.split, range(plan.count)):
        covered.setdefault(part.file.name, []).append((part.start, part.end))
    for number, size in enumerate(sizes):
        parts = covered[f"{number}.txt"]
        assert parts[0][0] == 0 and parts[-1][1] == size
        assert all(before[1] == after[0] for before, after in pairwise(parts))
    bases = [file.base for file in plan.files]
    assert all(after - file.base > file.size for file, after in zip(plan.files, bases[1:], strict=False))


@pytest.mark.parametrize("name", bundled())
def test_bundled_mappings_are_right(name: str) -> None:
    """A mapping that comes with the project would be refused."""
    assert find_mapping(name, None).name == name


GOOD = {"format": "csv", "time": {"column": "t"}, "record": {"source": "s", "topic": "t"}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "xml"}, "must be one of csv"),
        ({"times": {}}, "unknown table 'times'"),
        ({"time": {"colum": "t"}}, "time has no 'colum'; there are column"),
        ({"time": {}}, "time.column is missing"),
        ({"time": {"column": "t", "unit": "h"}}, "time.unit is 'h'"),
        ({"record": {"topic": "t"}}, "record.source is missing"),
        ({"record": {"source": "s", "topic": "t", "value": "v", "size": "1"}}, "a value or a size, not both"),
        ({"record": {"source": "{reflect('java.lang.System', 'exit')}", "topic": "t"}}, "may not call into Java"),
        ({"csv": {"header": "yes"}}, "csv.header must be bool"),
        ({"extra": {"topic": "t"}}, r"write \[\[extra\]\]"),
        ({"text": {"fields": "("}}, "text.fields is not a regular expression"),
    ],
)
def test_a_wrong_mapping_says_what_is_wrong(changes: dict[str, object], words: str) -> None:
    """The user of a wrong mapping would guess, or get a trace that is not the one meant."""
    with pytest.raises(TraceError, match=words):
        parse_mapping("mine", GOOD | changes)


def test_a_mapping_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    """A typing error in a mapping's name would end in a traceback."""
    with pytest.raises(TraceError, match="azure-llm-code"):
        find_mapping("azure", None)
    broken = tmp_path / "broken.toml"
    broken.write_text("format =")
    with pytest.raises(TraceError, match="is not TOML"):
        find_mapping(str(broken), None)


def test_a_directory_does_not_hide_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace's own directory, often named like its mapping, would make the mapping unreadable."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mooncake").mkdir()
    assert find_mapping("mooncake", None).name == "mooncake"


def test_what_java_says_is_one_line() -> None:
    """The user would see pages of Java, or only that a call failed, and not which file is broken."""
    said = (
        "An error occurred while calling o42.parquet.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat a.B.c(B.java:1)\n"
        "Caused by: org.apache.spark.SparkException: task failed\n\t... 9 more\n"
        "Caused by: java.lang.RuntimeException: /data/x is not a Parquet file\n\t... 9 more\n"
    )
    assert reason_of(RuntimeError(said)) == "/data/x is not a Parquet file"
    assert reason_of(RuntimeError(f"{said}TraceError: /data/x cannot be read: gone")) == "/data/x cannot be read: gone"
    assert reason_of(RuntimeError("first\nsecond")) == "first"
    assert reason_of(RuntimeError()) == "RuntimeError"
