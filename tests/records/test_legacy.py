"""Messages of the formats before record batches, as Kafka's own builder wrote them and as old brokers left them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import BatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from tests.records.stored import LEGACY_VECTORS, encode_messages, stored_batches

APPEND_TIME_MS = 1_700_000_009_999
EXPECTED = [
    (100, b"k1", b"v1"),
    (101, b"k2", None),
    (104, None, b"no key"),
    (105, b"", b""),
    (109, b"k1", b"x" * 300),
]
CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}


def name_of(vector: dict[str, Any]) -> str:
    return f"{vector['magic']}-{vector['codec']}{'-append' if vector['append_time'] else ''}"


def expected(vector: dict[str, Any]) -> list[Record]:
    records = []
    for at, (offset, key, value) in enumerate(EXPECTED):
        timestamp = APPEND_TIME_MS if vector["append_time"] else 1_700_000_000_000 + at
        records.append(Record(offset, timestamp if vector["magic"] else -1, key, value))
    return records


@pytest.mark.parametrize("vector", LEGACY_VECTORS, ids=name_of)
def test_messages_of_kafka_are_read(vector: dict[str, Any]) -> None:
    """Records of old brokers would be lost, or get other offsets, times or contents."""
    found = [
        record
        for batch, info in stored_batches(bytes.fromhex(vector["hex"]))
        for record in iterate_stored_records(batch)
    ]
    assert found == expected(vector)


@pytest.mark.parametrize("vector", LEGACY_VECTORS, ids=name_of)
def test_every_flipped_bit_of_a_message_is_noticed(vector: dict[str, Any]) -> None:
    """Damaged messages would be compacted into record batches with a checksum that says they are good."""
    data = bytes.fromhex(vector["hex"])
    whole = read_stored_header(data).size_in_bytes
    # The offset before the size is under no checksum, in these formats.
    for at in range(8 * 8, whole * 8):
        bad = bytearray(data[:whole])
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(BatchError):
            read_stored_header(bad, check_crc=True)
    for size in range(whole):
        with pytest.raises(BatchError):
            read_stored_header(data[:size])


@pytest.mark.parametrize("vector", LEGACY_VECTORS, ids=name_of)
def test_damaged_message_with_a_good_checksum_is_refused_not_misread(vector: dict[str, Any]) -> None:
    """A message that a broken client wrote would crash the cleaner's thread or give bytes of its neighbours."""
    data = bytes.fromhex(vector["hex"])
    whole = data[: read_stored_header(data).size_in_bytes]
    for at in range(16 * 8, len(whole) * 8):
        bad = bytearray(whole)
        bad[at // 8] ^= 1 << at % 8
        try:
            for record in iterate_stored_records(bad):
                assert len(record.key or b"") + len(record.value or b"") <= 1 << 20
        except BatchError:
            pass


RECORDS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 1 << 41), st.none() | st.binary(max_size=9), st.none() | st.binary()),
    min_size=1,
    max_size=12,
)


@given(RECORDS, st.sampled_from([0, 1]), st.sampled_from(list(CODECS.values())), st.integers(1, 1 << 50), st.booleans())
def test_messages_round_trip(
    rows: list[tuple[int, int, bytes | None, bytes | None]], magic: int, codec: int, offset: int, append_time: bool
) -> None:
    """What the other tests take for an old broker's files would not be that."""
    records = []
    for step, timestamp, key, value in rows:
        offset += step
        time = -1 if magic == 0 else APPEND_TIME_MS if append_time else timestamp
        records.append(Record(offset, time, key, value))
    data = encode_messages(records, magic, codec, APPEND_TIME_MS if append_time else None)
    found = []
    for batch, info in stored_batches(data):
        assert info.magic == magic
        inside = list(iterate_stored_records(batch))
        assert info.last_offset == inside[-1].offset
        found += inside
    assert found == records


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (lambda: wrapped(1, b""), "no inner records"),
        (
            lambda: wrapped(1, encode_messages([Record(7, 5, b"k", b"v")], 1, 0), offset=3),
            "Found invalid wrapper offset",
        ),
        (lambda: wrapped(1, wrapped(1, encode_messages([Record(0, 5, b"k", b"v")], 1, 0))), "must not be compressed"),
        (lambda: wrapped(0, b"x" * 40), "Invalid magic found in record"),
    ],
    ids=["empty", "offset", "nested", "garbage"],
)
def test_impossible_wrapper_is_refused(message: Any, reason: str) -> None:
    """One bad message would be given out as something that it is not."""
    with pytest.raises(BatchError, match=reason):
        list(iterate_stored_records(message()))


def wrapped(magic: int, inner: bytes, offset: int = 9) -> bytes:
    from kbroker.records.compression import compress
    from tests.records.stored import message_bytes

    return message_bytes(offset, magic, Codec.GZIP, 5, None, compress(Codec.GZIP, memoryview(inner)))


def test_wrapper_with_offset_zero_begins_at_zero() -> None:
    """Batches of old librdkafka producers would get negative offsets."""
    inner = encode_messages([Record(0, 5, b"a", b"v"), Record(1, 5, b"b", b"v")], 1, 0)
    assert [record.offset for record in iterate_stored_records(wrapped(1, inner, offset=0))] == [0, 1]


def test_batches_of_all_formats_follow_one_another() -> None:
    """A group coordinator could not load offsets that an old broker began to write."""
    new = RecordBatchBuilder(200)
    new.append(b"k", b"v", 5)
    data = b"".join(bytes.fromhex(vector["hex"]) for vector in LEGACY_VECTORS) + bytes(new.build())
    found = [record for info in iterate_stored_batches(data) for record in iterate_stored_records(data, info)]
    assert found == [record for vector in LEGACY_VECTORS for record in expected(vector)] + [Record(200, 5, b"k", b"v")]
