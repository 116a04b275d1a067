"""Headers, checksums, counts and stamping of v2 batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.log.batch_rules import check_stored_as_sent
from kbroker._fast.log.log_fields import AppendRules
from kbroker._fast.records.record_batch import (
    BatchError,
    CorruptBatchError,
    InvalidBatchHeaderError,
    InvalidRecordsError,
    OldMagicError,
    TruncatedBatchError,
    iterate_batches,
    read_header,
    seal,
    stamp,
    stamp_timestamps,
    validate,
    validate_crc,
)
from tests.records import reference
from tests.records.reference import encode_batch, simple_records

# Not covered by the checksum: base offset and leader epoch, which the leader writes itself.
UNCOVERED = {*range(8), *range(12, 16)}


def good_batch() -> bytearray:
    return encode_batch(simple_records([b"one", None, b"three"]), 3, base_timestamp=5, max_timestamp=5)


@given(
    st.fixed_dictionaries(
        {
            "base_offset": st.integers(0, 2**63 - 10),
            "partition_leader_epoch": st.integers(-1, 2**31 - 1),
            "attributes": st.integers(0, 0x7F),
            "base_timestamp": st.integers(-(2**63), 2**63 - 1),
            "max_timestamp": st.integers(-(2**63), 2**63 - 1),
            "producer_id": st.integers(-1, 2**63 - 1),
            "producer_epoch": st.integers(-1, 2**15 - 1),
            "base_sequence": st.integers(-1, 2**31 - 1),
        }
    )
)
def test_header_fields(fields: dict[str, int]) -> None:
    """Producer state, retention and compaction would act upon wrong fields."""
    batch = encode_batch(simple_records([b"v"] * 3), 3, **fields)
    info = read_header(b"xx" + batch, 2)
    expected = reference.decode_header(bytes(batch))
    for name, value in expected._asdict().items():
        if name != "batch_length":
            assert getattr(info, name) == value, name
    assert info.size_in_bytes == len(batch) == expected.batch_length + 12
    assert info.position == 2
    assert info.last_offset == fields["base_offset"] + 2
    attributes = fields["attributes"]
    assert info.compression == attributes & 7
    assert info.timestamp_type == (attributes >> 3) & 1
    assert info.is_transactional == bool(attributes & 0x10)
    assert info.is_control == bool(attributes & 0x20)
    assert info.has_delete_horizon == bool(attributes & 0x40)
    assert not info.walked


@pytest.mark.parametrize(
    ("base", "count", "last"), [(0, 3, 2), (2**31 - 1, 1, 2**31 - 1), (2**31 - 2, 3, 0), (-1, 3, -1)]
)
def test_last_sequence_goes_on_at_zero(base: int, count: int, last: int) -> None:
    """An idempotent producer would be refused after two thousand million records."""
    assert read_header(encode_batch(simple_records([b"v"] * count), count, base_sequence=base)).last_sequence == last


def test_every_changed_byte_is_noticed() -> None:
    """A byte that the disk or the network changed would be served as the user's data."""
    batch = good_batch()
    validate(batch)
    for at in range(len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[at] ^= 1 << bit
            if at in UNCOVERED:
                validate(damaged)
            else:
                with pytest.raises(BatchError):
                    validate(damaged)


def test_every_cut_is_noticed() -> None:
    """Half a batch at the end of a file would be taken for a whole one."""
    batch = good_batch()
    for size in range(len(batch)):
        with pytest.raises(TruncatedBatchError):
            read_header(batch, 0, size)
        with pytest.raises(TruncatedBatchError):
            validate(bytes(batch[:size]))


@pytest.mark.parametrize("position", [-1, 1000])
def test_position_outside(position: int) -> None:
    """A wrong position would read foreign memory."""
    with pytest.raises(ValueError, match="outside"):
        read_header(good_batch(), position)
    with pytest.raises(ValueError, match="outside"):
        read_header(good_batch(), 0, 5000)
    with pytest.raises(ValueError, match="no batch header"):
        stamp(good_batch(), position, 1, 1)


@pytest.mark.parametrize(
    ("length", "magic", "error"),
    [
        (13, 2, "Record size 13 is less than the minimum record overhead"),
        (-1, 2, "Record size -1 is less"),
        (-(2**31), 2, "is less"),
        (40, 3, "Invalid magic found in record: 3"),
        (40, 255, "Invalid magic found in record: -1"),
        (40, 2, "smaller than the minimum allowed overhead"),
    ],
)
def test_sizes_and_magic_that_cannot_be(length: int, magic: int, error: str) -> None:
    """Garbage would be walked as if it were a batch."""
    batch = good_batch()
    struct.pack_into(">i", batch, 8, length)
    batch[16] = magic
    with pytest.raises(CorruptBatchError, match=error):
        read_header(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_told_apart(magic: int) -> None:
    """A message of an old client would be called corrupt, and the client would send it again and again."""
    batch = good_batch()
    batch[16] = magic
    with pytest.raises(OldMagicError):
        read_header(batch)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"records_count": 4}, r"Inconsistent batch offset range \[0, 2\] and count of records 4"),
        ({"last_offset_delta": 1}, "Inconsistent"),
        ({"last_offset_delta": -1}, r"Batch has an invalid offset range: \[0, -1\]"),
        ({"records_count": 0}, "Invalid reported count for record batch: 0"),
        ({"records_count": -1}, "Invalid reported count for record batch: -1"),
        ({"last_offset_delta": 2**31 - 1, "records_count": -(2**31)}, "Invalid reported count"),
    ],
)
def test_counts_that_contradict(fields: dict[str, int], error: str) -> None:
    """The log would give out more or fewer offsets than there are records."""
    with pytest.raises(InvalidBatchHeaderError, match=error):
        validate(encode_batch(simple_records([b"v"] * 3), 3, **fields))


@pytest.mark.parametrize(
    ("declared", "error"), [(4, "premature EOF"), (2, "records still remaining"), (2**31 - 1, "premature")]
)
def test_counts_that_lie(declared: int, error: str) -> None:
    """The same, where header fields agree with each other but not with the records."""
    batch = encode_batch(simple_records([b"v"] * 3), 3, records_count=declared, last_offset_delta=declared - 1)
    with pytest.raises(InvalidRecordsError, match=error):
        validate(batch)


def test_required_keys() -> None:
    """A compacted topic would hold records that compaction can neither keep nor drop."""
    batch = encode_batch(simple_records([b"v"] * 2, keys=[None, b"k"]), 2)
    assert validate(batch).keyless_count == 1
    with pytest.raises(InvalidRecordsError, match="1 records have no key"):
        validate(batch, require_key=True)


@given(st.integers(0, 2**63 - 10), st.integers(0, 2**31 - 1))
def test_stamp_leaves_the_checksum_valid(base_offset: int, epoch: int) -> None:
    """The stored batch would be found corrupt by every reader."""
    batch = bytearray(b"ab") + good_batch()
    info = validate(batch, 2)
    stamp(batch, 2, base_offset, epoch, info)
    again = validate(batch, 2)
    assert (again.base_offset, again.last_offset) == (base_offset, base_offset + 2)
    assert again.partition_leader_epoch == epoch
    assert (info.base_offset, info.partition_leader_epoch) == (base_offset, epoch)
    assert batch[:2] == b"ab"


@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_stamp_timestamps_renews_the_checksum(timestamp_type: int) -> None:
    """LogAppendTime topics would hold batches that readers call corrupt."""
    batch = encode_batch(simple_records([b"v"]), 1, attributes=0x18)
    info = validate(batch)
    stamp_timestamps(batch, 0, timestamp_type, 12345, info)
    again = validate(batch)
    assert (again.timestamp_type, again.max_timestamp, again.is_transactional) == (timestamp_type, 12345, True)
    assert (info.timestamp_type, info.max_timestamp, info.crc) == (timestamp_type, 12345, again.crc)


def test_read_only_bytes_are_not_stamped() -> None:
    """Bytes that somebody else holds would change under them."""
    with pytest.raises((BufferError, TypeError)):
        stamp(bytes(good_batch()), 0, 1, 1)


def test_seal_makes_a_batch_of_header_and_payload() -> None:
    """A recompressed batch would carry the size and checksum of the old one."""
    batch = good_batch() + b"more"
    info = validate(batch)
    seal(batch, 3, info)
    assert (info.compression, info.size_in_bytes) == (3, len(batch))
    validate_crc(batch, read_header(batch))


def test_batches_in_a_row() -> None:
    """A consumer's fetch, which may end within a batch, would fail or lose what is whole."""
    one, two = good_batch(), encode_batch(simple_records([b"v"]), 1, base_offset=3)
    infos = list(iterate_batches(bytes(one + two + one[:30])))
    assert [(info.position, info.base_offset) for info in infos] == [(0, 0), (len(one), 3)]
    with pytest.raises(CorruptBatchError):
        list(iterate_batches(bytes(one) + bytes(40)))


def test_check_crc_needs_the_whole_batch() -> None:
    """A checksum would be taken over memory behind the buffer."""
    batch = good_batch()
    with pytest.raises(TruncatedBatchError):
        validate_crc(batch[:-1], read_header(batch))


LONG = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
SPAN = st.integers(0, 2**63 - 1) | st.integers(0, 1000)


@given(LONG, LONG, SPAN, SPAN)
def test_time_bounds_at_the_edges_of_64_bits(timestamp: int, now_ms: int, before_ms: int, after_ms: int) -> None:
    """A hostile timestamp would wrap around into the allowed range, and no retention would ever end."""
    batch = encode_batch(simple_records([b"v"]), 1, base_timestamp=timestamp, max_timestamp=timestamp)
    expected = timestamp == -1 or (timestamp > -1 and now_ms - before_ms <= timestamp <= now_ms + after_ms)
    rules = AppendRules(len(batch), before_ms, after_ms, 2**31 - 1, False, 0, 0)
    assert check_stored_as_sent(rules, validate(batch), len(batch), now_ms) == expected


@pytest.mark.parametrize(
    "fields", [{"attributes": 1}, {"attributes": 8}, {"attributes": 0x20}, {"base_offset": 1}, {"max_timestamp": 6}]
)
def test_what_is_not_plain(fields: dict[str, int]) -> None:
    """The short cut would let through what needs a closer look."""
    times = {"base_timestamp": 5, "max_timestamp": 5}
    payload = simple_records([b"v"])
    rules = AppendRules(1_000, 0, 0, 2**31 - 1, False, 0, 0)
    assert check_stored_as_sent(rules, validate(encode_batch(payload, 1, **times)), 1_000, 5)
    assert check_stored_as_sent(rules, validate(encode_batch(payload, 1, attributes=0x10, **times)), 1_000, 5)
    assert not check_stored_as_sent(rules, validate(encode_batch(payload, 1, **{**times, **fields})), 1_000, 5)
    assert not check_stored_as_sent(rules, read_header(encode_batch(payload, 1, **times)), 1_000, 5)
    assert not check_stored_as_sent(rules, validate(encode_batch(payload, 1, **times)), 1_001, 5)
    keys = AppendRules(1_000, 0, 0, 2**31 - 1, True, 0, 0)
    keyless = validate(encode_batch(payload, 1, **times))
    assert check_stored_as_sent(keys, keyless, 1_000, 5) == (not keyless.keyless_count)
