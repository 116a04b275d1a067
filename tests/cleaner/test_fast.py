"""MD5, the offset map and the two passes in C against slow references."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.base.md5 import md5, md5_many
from kbroker._fast.clean.clean import END, FULL, OVERFLOW, SPECIAL, Compaction
from kbroker._fast.clean.offset_map import OffsetMap
from kbroker._fast.records.batch_info import BatchError, CorruptBatchError
from kbroker._fast.records.record_batch import iterate_batches, read_header, seal, validate_crc
from kbroker.records.batch import HEADER, Record, RecordBatchBuilder, iterate_records
from tests.storage.batches import START_MS

SLOT_BYTES = 24


# -- MD5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3, 4, 54, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_md5_at_the_borders_of_blocks(size: int) -> None:
    """Two different keys would be taken for one, and one of them lost."""
    data = bytes(range(256)) * 4
    assert md5(data[:size]) == hashlib.md5(data[:size]).digest()


@given(st.lists(st.binary(max_size=130), max_size=70))
def test_md5_of_many_is_md5_of_each(messages: list[bytes]) -> None:
    """Keys of different lengths hashed side by side would disturb each other."""
    assert md5_many(messages) == b"".join(hashlib.md5(message).digest() for message in messages)


# -- the map ----------------------------------------------------------------------------------------------------------


class SlowMap:
    """Kafka's SkimpyOffsetMap, probe by probe."""

    def __init__(self, slots: int) -> None:
        self.slots: list[tuple[bytes, int] | None] = [None] * slots

    def _place(self, digest: bytes) -> int:
        attempt = 0
        while True:
            probe = int.from_bytes(digest[min(attempt, 12) :][:4], signed=True) + max(0, attempt - 12)
            probe = (probe + 2**31) % 2**32 - 2**31
            at = (0 if probe == -(2**31) else abs(probe)) % len(self.slots)
            held = self.slots[at]
            if held is None or held[0] == digest:
                return at
            attempt += 1

    def put(self, key: bytes, offset: int) -> None:
        digest = hashlib.md5(key).digest()
        self.slots[self._place(digest)] = (digest, offset)

    def get(self, key: bytes) -> int:
        held = self.slots[self._place(hashlib.md5(key).digest())]
        return -1 if held is None else held[1]


@given(st.lists(st.binary(max_size=4), max_size=60), st.integers(64, 90))
def test_the_map_finds_what_kafkas_would(keys: list[bytes], slots: int) -> None:
    """The last offset of a key would be forgotten, and its record dropped."""
    ours, slow = OffsetMap(slots * SLOT_BYTES, 1.0), SlowMap(slots)
    for offset, key in enumerate(keys):
        assert ours.add(key, offset)
        slow.put(key, offset)
    assert len(ours) == len(set(keys))
    for key in {*keys, b"absent"}:
        assert ours.get(key) == slow.get(key)


def test_the_map_grows_to_its_limit_and_then_is_full() -> None:
    """A clean would take more memory than it may, or lose keys while the map grows."""
    offsets = OffsetMap(100_000 * SLOT_BYTES, 0.9)
    assert (offsets.memory_bytes, offsets.capacity) == (0, 90_000)
    offset = 0
    while offsets.add(b"key-%d" % offset, offset):
        offset += 1
        assert offsets.memory_bytes <= 100_000 * SLOT_BYTES
    assert (offset, len(offsets), offsets.latest_offset) == (90_000, 90_000, 89_999)
    assert all(offsets.get(b"key-%d" % at) == at for at in range(0, 90_000, 7))
    offsets.clear()
    assert (len(offsets), offsets.memory_bytes, offsets.latest_offset, offsets.get(b"key-1")) == (0, 0, -1, -1)


@pytest.mark.parametrize(("memory", "factor"), [(0, 0.9), (24, 0.9), (1000, 0.0), (1000, 1.5)])
def test_a_map_that_could_hold_nothing_is_refused(memory: int, factor: float) -> None:
    """A cleaner would run for ever without getting anywhere."""
    with pytest.raises(ValueError, match=r"few|between"):
        OffsetMap(memory, factor)


# -- the passes -------------------------------------------------------------------------------------------------------

KEYS = st.one_of(st.none(), st.binary(min_size=0, max_size=3), st.just(b"k" * 70))
RECORDS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=40)), st.integers(0, 5000)), min_size=1, max_size=9
)
LOGS = st.lists(RECORDS, min_size=1, max_size=40)
Rows = list[tuple[bytes | None, bytes | None, int]]


def log_of(batches: list[Rows], first: int = 0) -> bytearray:
    data = bytearray()
    for rows in batches:
        builder = RecordBatchBuilder(base_offset=first)
        for key, value, delay in rows:
            builder.append(key, value, START_MS + delay, [("h", None)] if delay % 2 else ())
        data += builder.build()
        first += len(rows)
    return data


def records_in(data: bytes | bytearray | memoryview) -> list[Record]:
    found: list[Record] = []
    data = bytes(data)
    for info in iterate_batches(data):
        validate_crc(data, info)
        found += iterate_records(data, info)
    return found


def compacted(data: bytearray, *, start: int = 0, now_ms: int = START_MS, keys: int = 1000) -> tuple[bytes, Compaction]:
    work = Compaction(OffsetMap(keys * SLOT_BYTES, 1.0))
    end = max(info.last_offset for info in iterate_batches(data)) + 1
    work.start_clean(now_ms, 1000, end + 1, [])
    stop = work.index(data, 0, len(data), start)[1]
    assert stop in (END, FULL)
    work.start_segment(0, 100, 1 << 20)
    assert work.clean(data, 0, len(data)) == (len(data), END)
    return bytes(work.written()), work


@settings(deadline=None)
@given(LOGS, st.integers(0, 30), st.sampled_from([3, 10, 1000]))
def test_what_stays_is_what_the_rules_say(batches: list[Rows], start: int, keys: int) -> None:
    """The latest value of a key would be dropped, or an old one kept for ever."""
    data = log_of(batches)
    before = records_in(data)
    out, work = compacted(data, start=start, keys=keys)
    latest: dict[bytes, int] = {}
    known = -1
    for record in before:
        if record.key is not None and record.offset >= start:
            if len(latest) >= keys - 1:
                break
            latest[record.key] = record.offset
        known = record.offset
    if known < start:
        known = -1
    assert work.offsets.latest_offset == known
    expected = [
        record
        for record in before
        if record.offset > known
        or (record.key is not None and record.offset >= latest.get(record.key, -1))
    ]  # fmt: skip
    assert records_in(out) == expected
    assert (work.records_read, work.records_kept) == (len(before), len(expected))


@given(LOGS)
def test_a_batch_that_loses_nothing_stays_byte_for_byte(batches: list[Rows]) -> None:
    """Every clean would rewrite the whole log, and checksums with it."""
    unique = [[(b"%d-%d" % (at, place), b"v", 0) for place in range(len(rows))] for at, rows in enumerate(batches)]
    data = log_of(unique)  # type: ignore[arg-type]
    assert compacted(data)[0] == bytes(data)


def test_a_tombstone_gets_its_horizon_once_and_goes_after_it() -> None:
    """A deletion would vanish before slow consumers have read it, or never."""
    rows: Rows = [(b"a", b"1", 5), (b"a", None, 70_000), (b"b", b"2", 9)]
    data = log_of([rows])
    first, _ = compacted(data, now_ms=START_MS)
    (info,) = iterate_batches(first)
    assert info.has_delete_horizon
    assert info.base_timestamp == START_MS + 1000
    assert (info.base_offset, info.last_offset, info.records_count) == (0, 2, 2)
    assert records_in(first) == records_in(data)[1:]
    second, _ = compacted(bytearray(first), now_ms=START_MS + 999)
    assert second == first
    third, _ = compacted(bytearray(first), now_ms=START_MS + 1000)
    assert [record.key for record in records_in(third)] == [b"b"]
    assert records_in(third)[0].timestamp == START_MS + 9


def test_the_last_batch_of_a_producer_and_of_the_range_stay_as_headers() -> None:
    """A producer's next batch would be refused as out of order after a restart."""
    data = bytearray()
    for at in range(3):
        builder = RecordBatchBuilder(base_offset=at, producer_id=4, producer_epoch=1, base_sequence=at)
        builder.append(b"k", b"%d" % at, START_MS)
        data += builder.build()
    data += log_of([[(b"k", b"last", 0)], [(None, b"no key", 0)]], 3)
    work = Compaction(OffsetMap(1 << 16))
    work.start_clean(START_MS, 1000, 5, [1])
    work.index(data, 0, len(data), 0)
    work.start_segment(0, 100, 1 << 20)
    work.clean(data, 0, len(data))
    out = bytes(work.written())
    found = list(iterate_batches(out))
    assert [(info.base_offset, info.records_count) for info in found] == [(1, 0), (3, 1), (4, 0)]
    empty = found[0]
    assert (empty.size_in_bytes, empty.producer_id, empty.producer_epoch, empty.base_sequence) == (61, 4, 1, 1)
    assert (empty.base_timestamp, empty.max_timestamp) == (-1, START_MS)
    assert work.keyless_count == 1
    again, _ = compacted(bytearray(out))
    assert [info.base_offset for info in iterate_batches(again)] == [3]


def test_append_times_and_other_header_fields_survive() -> None:
    """A record's time would change when its neighbour is compacted away."""
    data = log_of([[(b"a", b"1", 5), (b"b", b"2", 7), (b"c", None, 9)], [(b"a", b"3", 20)]])
    header = list(HEADER.unpack_from(data))
    size = header[1] + 12
    header[2], header[5], header[8] = 12, 0x08, START_MS + 500
    HEADER.pack_into(data, 0, *header)
    first = bytearray(data[:size])
    seal(first, 0)
    data[:size] = first
    out, _ = compacted(data)
    changed = next(iterate_batches(out))
    assert (changed.partition_leader_epoch, changed.timestamp_type, changed.max_timestamp) == (12, 1, START_MS + 500)
    assert changed.has_delete_horizon
    assert [(r.offset, r.timestamp) for r in records_in(out)] == [
        (1, START_MS + 500),
        (2, START_MS + 500),
        (3, START_MS + 20),
    ]


def test_special_batches_and_cut_ones_stop_a_pass() -> None:
    """A transaction's records would be judged without knowing how it ended."""
    plain = log_of([[(b"a", b"1", 0)]])
    builder = RecordBatchBuilder(base_offset=1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(b"b", b"2", START_MS)
    data = plain + builder.build() + log_of([[(b"c", b"3", 0)]], 2)
    work = Compaction(OffsetMap(1 << 16))
    work.start_clean(START_MS, 0, 9, [])
    assert work.index(data, 0, len(data), 0) == (len(plain), SPECIAL)
    assert work.offsets.latest_offset == 0
    assert work.index(data, 0, len(plain) - 1, 0) == (0, END)
    work.start_segment(0, 100, 1 << 20)
    assert work.clean(data, 0, len(data)) == (len(plain), SPECIAL)
    assert bytes(work.written()) == bytes(plain)


def test_a_batch_too_far_for_the_segments_indexes_waits_for_the_next() -> None:
    """An index entry would lead to another batch, as its offset has 32 bits."""
    near, far = log_of([[(b"a", b"1", 0)]]), log_of([[(b"b", b"2", 0)]], 1 << 31)
    work = Compaction(OffsetMap(1 << 16))
    work.start_clean(START_MS, 0, 1 << 32, [])
    work.start_segment(0, 100, 1 << 20)
    assert work.clean(near + far, 0, len(near + far)) == (len(near), OVERFLOW)
    assert bytes(work.written()) == bytes(near)
    work.start_segment(1 << 31, 100, 1 << 20)
    assert work.clean(near + far, len(near), len(near + far)) == (len(near + far), END)
    assert bytes(work.written()) == bytes(far)


@given(st.data())
def test_damage_is_found_and_never_sealed_anew(data: st.DataObject) -> None:
    """A damaged record would get a valid checksum, and be served as if it were whole."""
    good = log_of([[(b"a", b"1", 0), (b"b", None, 3)], [(b"a", b"2", 0)]])
    bad = bytearray(good)
    place = data.draw(st.integers(16, len(bad) - 1))
    bad[place] ^= data.draw(st.integers(1, 255))
    first = read_header(good).size_in_bytes
    # Base offset and leader epoch are not under the checksum, and a length may only cut the log short.
    if place < first + 16 and place >= first:
        return
    work = Compaction(OffsetMap(1 << 16))
    work.start_clean(START_MS, 0, 9, [])
    work.start_segment(0, 100, 1 << 20)
    with pytest.raises(BatchError):
        work.index(bad, 0, len(bad), 0)
    with pytest.raises(BatchError):
        work.clean(bad, 0, len(bad))


@given(st.binary(min_size=0, max_size=300), st.integers(0, 4), st.integers(-3, 20))
def test_records_that_contradict_themselves_are_refused(payload: bytes, deltas: int, count: int) -> None:
    """A hostile batch would make the cleaner read outside of its buffer."""
    batch = bytearray(HEADER.pack(0, 0, 0, 2, 0, 0, deltas, 0, 0, -1, -1, -1, count))
    batch += payload
    seal(batch, 0)
    work = Compaction(OffsetMap(1 << 16))
    work.start_clean(START_MS, 0, 9, [])
    work.start_segment(0, 100, 1 << 20)
    try:
        work.index(batch, 0, len(batch), 0)
        work.clean(batch, 0, len(batch))
    except BatchError:
        return
    records = list(iterate_records(batch))
    assert len(records) == count
    assert all(0 <= record.offset <= deltas for record in records)


def test_a_bare_crc_error_names_the_batch() -> None:
    """An operator could not tell where a log is damaged."""
    bad = log_of([[(b"a", b"1", 0)]], 77)
    bad[-1] ^= 1
    work = Compaction(OffsetMap(1 << 16))
    with pytest.raises(CorruptBatchError, match="offset 77"):
        work.index(bad, 0, len(bad), 0)


def test_index_entries_are_those_of_an_append() -> None:
    """Reads from a compacted segment would have to scan it from its start."""
    data = log_of([[(b"%d" % at, b"v" * 30, at)] for at in range(40)])
    out, work = compacted(data)
    offset_index, time_index = work.finish_segment()
    positions = {info.last_offset: info.position for info in iterate_batches(out)}
    entries = [
        (int.from_bytes(offset_index[at : at + 4]), int.from_bytes(offset_index[at + 4 : at + 8]))
        for at in range(0, len(offset_index), 8)
    ]
    assert len(entries) > 10
    assert all(positions[offset] == position for offset, position in entries)
    gaps = [later - position for (_, position), (_, later) in pairwise(entries)]
    assert all(100 < gap < 400 for gap in gaps)
    times = [
        (int.from_bytes(time_index[at : at + 8]), int.from_bytes(time_index[at + 8 : at + 12]))
        for at in range(0, len(time_index), 12)
    ]
    assert times == sorted(times)
    assert times[-1] == (START_MS + 39, 39)
