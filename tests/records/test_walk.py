"""The C walks over records, whole and in chunks, against the slow reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import BatchInfo, InvalidRecordsError, read_header, validate
from kbroker._fast.records.record_stream import RecordWalker, walk_decompressed
from tests.records import reference
from tests.records.reference import ReferenceRecord
from tests.records.strategies import chunked, damaged_payloads, payload_of, record_lists

BASE = 1_700_000_000_000


def wrap(value: int) -> int:
    """As 64 bits hold it."""
    return (value + 2**63) % 2**64 - 2**63


def expected_facts(records: list[ReferenceRecord]) -> tuple[int, int, int]:
    timestamps = [wrap(BASE + record.timestamp_delta) for record in records]
    return (
        sum(record.key is None for record in records),
        max([-1, *timestamps]),
        min([2**63 - 1, *(timestamp for timestamp in timestamps if timestamp != -1)]),
    )


def facts(info: BatchInfo) -> tuple[int, int, int]:
    assert info.walked
    return info.keyless_count, info.max_record_timestamp, info.min_record_timestamp


@given(record_lists())
def test_good_records_are_taken_with_their_facts(records: list[ReferenceRecord]) -> None:
    """A producer's batch would be refused, or judged by wrong timestamps or keys."""
    info = validate(reference.encode_batch(payload_of(records), len(records), base_timestamp=BASE))
    assert facts(info) == expected_facts(records)
    timestamps = [BASE + record.timestamp_delta for record in records]
    assert info.offset_of_max_timestamp == timestamps.index(max(timestamps))


@settings(max_examples=400)
@given(damaged_payloads(), st.data())
def test_damage_is_judged_like_the_reference(damaged: tuple[bytes, int], data: st.DataObject) -> None:
    """A malformed record would be stored and stop every consumer of the partition."""
    payload, count = damaged
    batch = reference.encode_batch(payload, count, base_timestamp=BASE)
    chunks = data.draw(chunked(payload))
    try:
        records = reference.walk(payload, count)
    except reference.MalformedError:
        with pytest.raises(InvalidRecordsError):
            validate(batch)
        with pytest.raises(InvalidRecordsError):
            walk_decompressed(read_header(batch), chunks)
    else:
        assert facts(validate(batch)) == expected_facts(records)
        assert facts(walk_decompressed(read_header(batch), chunks)) == expected_facts(records)


def test_cut_at_every_byte() -> None:
    """A compressed batch would be refused depending on where the decompressor's chunks end."""
    records = [
        ReferenceRecord(0, 300, b"k" * 70, b"v" * 200, ((b"h", b"x" * 80), (b"", None))),
        ReferenceRecord(1, -(2**40), None, None),
        ReferenceRecord(2, 0, b"", b"", ((b"key", b""),)),
    ]
    payload = payload_of(records)
    batch = reference.encode_batch(payload, 3, base_timestamp=BASE)
    for cut in range(len(payload) + 1):
        info = walk_decompressed(read_header(batch), [payload[:cut], payload[cut:]])
        assert facts(info) == expected_facts(records)
    one_by_one = walk_decompressed(read_header(batch), [payload[at : at + 1] for at in range(len(payload))])
    assert facts(one_by_one) == expected_facts(records)


def test_a_record_larger_than_memory_is_skipped_as_it_comes() -> None:
    """A hostile length would make the broker set aside gigabytes before it sees the bytes."""
    body = b"\x00\x00\x00" + reference.encode_varint(2**30)
    batch = reference.encode_batch(b"", 1, attributes=1)
    walker = RecordWalker(read_header(batch))
    walker.feed(reference.encode_varint(2**30 + len(body) + 2) + body)
    chunk = bytes(1 << 20)
    for _ in range(16):
        walker.feed(chunk)
    with pytest.raises(InvalidRecordsError, match="premature"):
        walker.finish()


@given(record_lists(), st.data())
def test_findings_name_the_records(records: list[ReferenceRecord], data: st.DataObject) -> None:
    """The producer would be told of the wrong records."""
    payload = payload_of(records)
    info = read_header(reference.encode_batch(payload, len(records), base_timestamp=BASE))
    walker = RecordWalker(info, collect=100, require_key=True, earliest=BASE - 5, latest=BASE + 5)
    for chunk in data.draw(chunked(payload)):
        walker.feed(chunk)
    assert walker.findings == [
        (
            index,
            BASE + record.timestamp_delta,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
        )
        for index, record in enumerate(records)
        if record.key is None or abs(record.timestamp_delta) > 5
    ]


def test_findings_end_at_the_limit() -> None:
    """A batch of a million bad records would hold the loop to name each."""
    payload = reference.simple_records([b"v"] * 50, keys=[None] * 50)
    walker = RecordWalker(read_header(reference.encode_batch(payload, 50)), collect=3, require_key=True)
    walker.feed(payload)
    assert [finding[0] for finding in walker.findings] == [0, 1, 2]
