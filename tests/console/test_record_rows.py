"""Records as viewers see them, from bytes that producers chose.

Also of `kbroker.console.json_text`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.console.json_text import without_escapes
from kbroker.console.record_filter import RecordFilter
from kbroker.console.record_rows import Found, Wanted, field_of, look
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.registry.display import Display

EVERYTHING = Wanted("topic", 0, 1 << 60, 100, False, RecordFilter(), 1024, None)


def batch(offset: int, *values: bytes, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    builder = RecordBatchBuilder(offset, codec, producer_id, 0, 0, is_transactional=producer_id >= 0)
    for value in values:
        builder.append(b"key", value, 1000 + offset, [("name", b"\x00"), ("empty", None)])
    return bytes(builder.build())


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    data = bytearray(build_end_transaction(kind, 0, producer_id, 0, 5000))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def offsets(found: Found) -> list[int]:
    return [row.offset for row in found.rows]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec_are_shown(codec: Codec) -> None:
    """A viewer would see nothing of topics that are compressed."""
    found = look(batch(5, b"one", b"two", codec=codec), EVERYTHING)
    assert [row.value.text for row in found.rows if row.value] == ["one", "two"]
    assert (offsets(found), found.next_offset, found.looked_at, found.problem) == ([5, 6], 7, 2, "")
    (binary, absent) = found.rows[0].headers
    assert binary.value is not None and binary.value.is_binary and absent.value is None


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (r'{"name": "M\u00fcller \/ S\u00F6hne"}', '{"name": "Müller / Söhne"}'),
        (r'"\ud83d\ude80 \u4e2d"', '"🚀 中"'),
        (r'{"a": "\\u00fc", "b": "\"\n"}', r'{"a": "\\u00fc", "b": "\"\n"}'),
        (r'{"a": "\u0022\u005c\u000a\u202e\ud83d"}', r'{"a": "\u0022\u005c\u000a\u202e\ud83d"}'),
        (r"path\users", r"path\users"),
        (r"C:\u00fc", r"C:\u00fc"),
    ],
)
def test_escapes_of_json_are_shown_as_text(written: str, shown: str) -> None:
    """A person could not read names that are not English, or took what is escaped twice for a letter."""
    (row,) = look(batch(0, written.encode()), replace(EVERYTHING, is_readable=True)).rows
    assert row.value is not None and row.value.text == shown
    (kept,) = look(batch(0, written.encode()), EVERYTHING).rows
    assert kept.value is not None and kept.value.text == written


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_shown_is_the_same_json(value: object) -> None:
    """What a person copies from the page would be other JSON than was written."""
    assert json.loads(without_escapes(json.dumps(value))) == value


@pytest.mark.parametrize(
    "needle",
    ["Müller", "MÜLLER", r"M\u00fcller", "/x", r"\/x", '"id": 7', '"id":7', '"lines": [1, 2]', "kopf Ä"],
)
def test_a_search_finds_what_is_shown_and_what_was_written(needle: str) -> None:
    """A person who copies a word from the page into the search would be said that it is not there."""
    builder = RecordBatchBuilder(0, Codec.NONE, -1, 0, 0)
    builder.append(b"key", rb'{"name":"M\u00fcller\/x","id":7,"lines":[1,2]}', 0, [("h", "Kopf ä".encode())])
    builder.append(b"key", b'{"name":"Meier","id":8}', 0, [])
    found = look(bytes(builder.build()), replace(EVERYTHING, chosen=RecordFilter(needle.lower())))
    assert offsets(found) == [0]


def test_only_the_range_that_is_asked_for_is_shown() -> None:
    """Pages of records would overlap, or leave some out."""
    data = batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e")
    assert offsets(look(data, Wanted("t", 1, 4, 100, False, RecordFilter(), 64, None))) == [1, 2, 3]
    first = look(data, Wanted("t", 1, 100, 2, False, RecordFilter(), 64, None))
    assert (offsets(first), first.next_offset) == ([1, 2], 3)
    newest = look(data, Wanted("t", 0, 100, 2, True, RecordFilter(), 64, None))
    assert (offsets(newest), newest.next_offset) == ([3, 4], 5)
    assert look(data[:-1], EVERYTHING).next_offset == 3


def test_the_newest_records_hold_no_more_memory_than_is_shown() -> None:
    """Ten thousand records of 16 MB, a few kilobytes on disk in zstd, were held at one time, and ended the broker."""
    data = b"".join(batch(index, b"x" * 1000, codec=Codec.ZSTD) for index in range(20))
    wanted = Wanted("t", 0, 100, 10, True, RecordFilter(), 4096, None, 5500)
    found = look(data, wanted)
    assert (offsets(found), found.next_offset, found.is_full) == ([15, 16, 17, 18, 19], 20, True)
    assert found.shown_bytes == sum(row.shown_bytes for row in found.rows) <= wanted.room
    assert offsets(look(data, replace(wanted, room=1))) == [19]
    whole = look(data, replace(wanted, room=1 << 20))
    assert (offsets(whole), whole.is_full) == (list(range(10, 20)), False)


def test_a_text_is_found_in_keys_values_and_headers() -> None:
    """A person who looks for an order would be told that there is none."""
    data = batch(0, b"Apple", b"pear") + batch(2, b"APPLE pie", codec=Codec.GZIP)
    found = look(data, Wanted("t", 0, 100, 10, False, RecordFilter("apple"), 64, None))
    assert (offsets(found), found.looked_at) == ([0, 2], 3)
    assert len(look(data, Wanted("t", 0, 100, 10, False, RecordFilter("name"), 64, None)).rows) == 3
    assert not look(data, Wanted("t", 0, 100, 10, False, RecordFilter("cherry"), 64, None)).rows


def test_records_of_aborted_transactions_are_left_out_for_committed_readers() -> None:
    """The console would show as true what a producer took back."""
    data = (
        batch(0, b"aborted", producer_id=7)
        + batch(1, b"committed", producer_id=8)
        + marker(2, 7, ControlType.ABORT)
        + batch(3, b"again", producer_id=7)
        + marker(4, 7, ControlType.COMMIT)
    )
    committed = look(data, Wanted("t", 0, 100, 10, False, RecordFilter(), 64, [(7, 0)]))
    assert (offsets(committed), committed.next_offset) == ([1, 3], 5)
    everything = look(data, EVERYTHING)
    assert [(row.offset, row.control) for row in everything.rows] == [
        (0, ""),
        (1, ""),
        (2, "abort"),
        (3, ""),
        (4, "commit"),
    ]


def test_a_batch_that_cannot_be_read_is_told_and_passed_over() -> None:
    """One damaged batch would hide all that is behind it."""
    broken = bytearray(batch(0, b"x" * 100, codec=Codec.ZSTD))
    broken[70:80] = bytes(10)
    found = look(bytes(broken) + batch(1, b"whole"), EVERYTHING)
    assert offsets(found) == [1] and "offset 0" in found.problem


def test_what_unpacks_to_too_much_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small batch of zeros could take all memory of the broker."""
    monkeypatch.setattr("kbroker.console.record_rows.UNPACKED_BYTES", 1000)
    found = look(batch(0, bytes(100_000), codec=Codec.GZIP), EVERYTHING)
    assert not found.rows and found.problem and found.next_offset == 1


def test_values_are_decoded_but_not_those_of_markers_and_internal_topics(tmp_path: Path) -> None:
    """Markers and offsets begin with a zero byte, too, and would be taken for records with a schema."""
    path = tmp_path / "text.avsc"
    path.write_text('"string"')
    display = Display(None, {("", False): path})
    data = batch(0, b"\x14" + b"x" * 10, b"\x15", producer_id=7) + marker(2, 7, ControlType.COMMIT)
    found = look(data, replace(EVERYTHING, display=display, field_bytes=8))
    decoded, broken, end = (row.value for row in found.rows)
    assert decoded is not None and broken is not None and end is not None
    assert (decoded.text, decoded.is_cut, decoded.is_binary, decoded.schema) == ('"xxxxxxx', True, False, "text.avsc")
    assert decoded.size_bytes == 11
    assert (broken.text, broken.schema) == (base64.b64encode(b"\x15").decode(), "text.avsc")
    assert "not Avro of this schema" in broken.problem
    assert (end.schema, end.problem) == ("", "")
    internal = look(batch(0, b"\x02a"), replace(EVERYTHING, topic="__consumer_offsets", display=display))
    assert [row.value and row.value.schema for row in internal.rows] == [""]


@given(st.binary(max_size=40), st.integers(1, 50))
def test_any_bytes_become_text_or_base64(data: bytes, most: int) -> None:
    """A record could break the answer, or be shown as other bytes than it has."""
    field = field_of(data, most)
    assert field is not None and (field.size_bytes, field.is_cut) == (len(data), len(data) > most)
    if field.is_binary:
        assert base64.b64decode(field.text) == data[:most]
    else:
        assert data.startswith(field.text.encode()) and len(data[:most]) - len(field.text.encode()) < 4


def test_a_text_that_is_cut_within_a_character_stays_text() -> None:
    """Long texts in most languages would be shown as bytes."""
    field = field_of("äöü".encode(), 3)
    assert field is not None and (field.text, field.is_binary, field.is_cut) == ("ä", False, True)
    assert field_of(None, 3) is None
