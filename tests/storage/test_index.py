"""Sparse indexes: searches against a plain list, files across trim, truncate and reopen, damaged files.

Also of `kbroker.storage.log.segment_view`.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.log.batch_seek import find_batch, walk_batches
from kbroker._fast.log.index import NEEDS_MAP, NO_SLOT, AppendTail, OffsetTable, TimeTable
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.indexes import OffsetIndex, TimeIndex
from tests.storage.batches import batch

BASE = 1 << 40
ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 4000)), max_size=1500).map(
    lambda steps: [
        (BASE + sum(a for a, _ in steps[: i + 1]), sum(b for _, b in steps[: i + 1]))
        for i in range(min(len(steps), 300))
    ]
)


def offset_index(path: Path, max_bytes: int = 80_000) -> OffsetIndex:
    return OffsetIndex(SYSTEM_FILES, OpenFiles(16), str(path), BASE, max_bytes)


def time_index(path: Path, max_bytes: int = 80_000) -> TimeIndex:
    return TimeIndex(SYSTEM_FILES, OpenFiles(16), str(path), BASE, max_bytes)


def expected_position(entries: list[tuple[int, int]], offset: int) -> int:
    at = bisect_right([entry[0] for entry in entries], offset)
    return entries[at - 1][1] if at else 0


@settings(max_examples=60, deadline=None)
@given(entries=ENTRIES, cut=st.integers(0, 300), targets=st.lists(st.integers(-5, 400_000), max_size=20))
def test_lookup_agrees_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], cut: int, targets: list[int]
) -> None:
    """A fetch would start behind its offset and lose records."""
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = offset_index(path)
    for offset, position in entries[:cut]:
        index.append(offset, position)
    index.write_tail()
    for offset, position in entries[cut:]:
        index.append(offset, position)
    for target in [*targets, *(offset - BASE for offset, _ in entries[:5])]:
        assert index.position_for(BASE + target) == expected_position(entries, BASE + target)
        expected = next((offset for offset, position in entries if position >= target), None)
        assert (index.upper_bound(target) or (None,))[0] == expected
    index.trim()
    assert path.stat().st_size == len(entries) * 8
    again = offset_index(path)
    assert again.table.entries == len(entries)
    assert again.table.last_key == (entries[-1][0] if entries else -1)
    for target in targets:
        assert again.position_for(BASE + target) == expected_position(entries, BASE + target)


@settings(max_examples=40, deadline=None)
@given(entries=ENTRIES, keep=st.integers(0, 300), stored=st.integers(0, 300))
def test_truncation_agrees_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], keep: int, stored: int
) -> None:
    """After a truncation an index would lead into bytes that are gone."""
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = offset_index(path)
    for at, (offset, position) in enumerate(entries):
        if at == stored:
            index.write_tail()
        index.append(offset, position)
    limit = entries[keep][0] if keep < len(entries) else BASE + 10**9
    index.truncate_to(limit)
    kept = [entry for entry in entries if entry[0] < limit]
    assert index.table.entries == len(kept)
    following = (limit + 1, (kept[-1][1] if kept else 0) + 1)
    index.append(*following)
    assert index.position_for(limit + 5) == following[1]
    index.trim()
    assert offset_index(path).table.entries == len(kept) + 1


def test_preallocated_file_is_reopened_at_its_entries(tmp_path: Path) -> None:
    """After kill -9 an active index of 10 MiB would count as full of zero entries."""
    path = tmp_path / "x.index"
    index = offset_index(path, 10 << 20)
    index.create()
    assert path.stat().st_size == 10 << 20
    for i in range(1, 700):
        index.append(BASE + i, i * 10)
    index.write_tail()
    again = offset_index(path, 10 << 20)
    assert (again.table.entries, again.table.last_key, again.table.last_value) == (699, BASE + 699, 6990)
    assert again.position_for(BASE + 350) == 3500


def test_time_index_keeps_one_slot_for_the_final_entry(tmp_path: Path) -> None:
    """The newest timestamp of a full segment would be missing, and a lookup by time would skip the segment."""
    index = time_index(tmp_path / "x.timeindex", max_bytes=12 * 4 + 5)
    assert index.max_entries == 4
    for i in range(3):
        assert not index.is_full
        index.append(1000 + i, BASE + i)
    assert index.is_full
    index.append(2000, BASE + 9)
    assert index.last_entry() == (2000, BASE + 9)


def test_entries_that_do_not_ascend_are_refused() -> None:
    """A descending entry would break every later search."""
    offsets, times = OffsetTable(BASE), TimeTable(BASE)
    offsets.append(BASE + 5, 100)
    with pytest.raises(ValueError, match="ascends"):
        offsets.append(BASE + 5, 200)
    with pytest.raises(ValueError, match="does not fit"):
        offsets.append(BASE + (1 << 31), 200)
    times.append(50, BASE + 5)
    assert times.append(50, BASE + 6) == 1
    with pytest.raises(ValueError, match="ascends"):
        times.append(49, BASE + 7)
    with pytest.raises(ValueError, match="never descend"):
        times.append(60, BASE + 4)


def test_lookup_without_its_file_asks_for_it() -> None:
    """A search over unmapped memory would crash the broker."""
    table = OffsetTable(BASE, 10)
    assert table.position_for(BASE + 1) == NEEDS_MAP
    assert table.slot_for(BASE) == NEEDS_MAP
    with pytest.raises(LookupError):
        table.get(3)
    assert OffsetTable(BASE).slot_for(BASE) == NO_SLOT


def test_damaged_entries_end_the_trusted_part(tmp_path: Path) -> None:
    """A torn index page would send recovery to the wrong place."""
    path = tmp_path / "x.index"
    index = offset_index(path)
    for i in range(1, 100):
        index.append(BASE + i, i * 100)
    index.trim()
    raw = bytearray(path.read_bytes())
    raw[8 * 40 : 8 * 41] = bytes(8)
    path.write_bytes(raw)
    assert offset_index(path).sane_entries(1 << 30) == 40
    assert offset_index(path).sane_entries(2000) == 20


def test_maps_are_given_up_under_the_budget(tmp_path: Path) -> None:
    """Ten thousand partitions would run out of maps."""
    budget = OpenFiles(16)
    indexes = []
    for i in range(40):
        index = OffsetIndex(SYSTEM_FILES, budget, str(tmp_path / f"{i}.index"), BASE, 8000)
        index.append(BASE + 1, 7)
        index.trim()
        indexes.append(index)
    assert [index.position_for(BASE + 1) for index in indexes] == [7] * 40
    assert len(budget) == 16
    assert sum(index.table.mapped is not None for index in indexes) == 16
    assert [index.position_for(BASE + 1) for index in indexes] == [7] * 40


def test_tail_remembers_the_last_batches_only() -> None:
    """A reader at the tail would be sent to another batch's position."""
    tail = AppendTail(1000, -1, 0, 0, 100)
    due = [tail.append(i * 2, i * 2 + 1, 60, i) for i in range(50)]
    assert due[:4] == [False, False, True, False]
    assert tail.size == 1000 + 50 * 60
    assert (tail.max_timestamp, tail.offset_of_max_timestamp) == (49, 99)
    assert tail.find(99) == tail.find(98) == (1000 + 49 * 60, 60)
    assert tail.find((50 - 32) * 2) == (1000 + 18 * 60, 60)
    assert tail.find((50 - 33) * 2) is None
    assert tail.find(100) is None


def test_header_walk_stays_inside_its_data() -> None:
    """A lying length would read memory that is not the segment's."""
    data = bytearray()
    for base in (0, 2, 4):
        one = batch([b"a", b"b"])
        one[0:8] = base.to_bytes(8)
        data += one
    size = len(data) // 3
    assert find_batch(data, 3, 0, len(data)) == (size, size, 2, 3)
    assert find_batch(data, 9, 0, len(data)) == (3 * size, 0, -1, -1)
    assert find_batch(data[:-1], 5, 0, len(data)) == (2 * size, size, 4, 5)
    assert walk_batches(data, 0, len(data))[:2] == (3 * size, 5)
    assert walk_batches(data, 0, len(data) - 1)[:2] == (2 * size, 3)
    for lie in (0, 1, 48, 0x80000000, 0xFFFFFFFF):
        bad = bytearray(data)
        bad[size + 8 : size + 12] = lie.to_bytes(4)
        with pytest.raises(ValueError, match="no batch at position"):
            find_batch(bad, 5, 0, len(bad))
    huge = bytearray(data)
    huge[8:12] = (0x7FFFFFF0).to_bytes(4)
    with pytest.raises(ValueError, match=r"position 0 is said to have 2147483644 bytes"):
        find_batch(huge, 5, 0, len(huge))
