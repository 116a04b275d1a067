"""What a follower makes of the batches that its leader sent: the same log, whether they come at once or one by one.

Also of `kbroker.storage.log.replicated_append`, `kbroker._fast.log.append_steps`.
"""

from __future__ import annotations

import errno
import random
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.base.crc32c import crc32c
from kbroker.config import LogConfig
from kbroker.errors import InvalidRecordError, KafkaStorageError
from kbroker.storage.files.filesystem import Buffer
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.replicated_append import portions
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import (
    START_MS,
    UnsyncedFiles,
    append,
    batch,
    environment,
    headers,
    marker,
    open_log,
    region_bytes,
)
from tests.storage.full_files import FullFiles

END = FetchIsolation.LOG_END
ONE = len(batch())


class CountedWrites(UnsyncedFiles):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        self.sizes.append(len(data))
        super().pwrite(fd, data, position)


def content_of(log: UnifiedLog) -> bytes:
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = region_bytes(log.read(offset, 1 << 20, END, True))
        parts.append(part)
        offset = max(info.last_offset for info in headers(part)) + 1
    return b"".join(parts)


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def test_what_a_fetch_brings_is_one_write(tmp_path: Path) -> None:
    """A follower would pay a system call for each batch of a producer that sends small ones."""
    leader = open_log(tmp_path / "leader")
    for i in range(40):
        append(leader, batch([b"%05d" % i]), leader_epoch=i // 10)
    content = content_of(leader)
    files = CountedWrites()
    follower = open_log(tmp_path / "follower", LogConfig(index_interval_bytes=1 << 20), env=environment(files))
    # The first batch of a segment says when the segment is to be rolled.
    follower.append_as_follower(content[:ONE])
    follower.append_as_follower(content[ONE:])
    assert files.sizes == [ONE, len(content) - ONE]
    assert follower.leader_epoch_cache.entries == leader.leader_epoch_cache.entries


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=40),
    st.sampled_from((ONE * 3 + 5, ONE * 9, 1 << 20)),
    st.sampled_from((0, 150, 4096)),
    st.randoms(use_true_random=False),
)
def test_many_batches_at_once_make_the_log_that_single_ones_make(
    rows: list[tuple[int, int, int]], segment_bytes: int, interval: int, rng: random.Random
) -> None:
    """Segments, indexes, epochs or producers of a follower would depend on how its fetches happened to be cut."""
    config = LogConfig(internal_segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=30)
    with tempfile.TemporaryDirectory() as root:
        leader = open_log(Path(root) / "leader", config)
        sequences: dict[int, int] = {}
        for epoch, (producer, count, later) in enumerate(rows):
            time = START_MS + epoch + later
            if producer == 0:
                append(leader, batch([b"v"] * count, timestamp=time), leader_epoch=epoch // 3)
            elif producer in sequences and later % 3 == 0:
                data = marker(producer, 0, abort=later % 2 == 0)
                append(leader, data, leader_epoch=epoch // 3, origin=AppendOrigin.COORDINATOR)
            else:
                first = sequences.get(producer, 0)
                data = batch(
                    [b"v"] * count,
                    timestamp=time,
                    producer_id=producer,
                    epoch=0,
                    sequence=first,
                    transactional=True,
                )
                append(leader, data, leader_epoch=epoch // 3)
                sequences[producer] = first + count
        content = content_of(leader)
        single, joined = (open_log(Path(root) / name, config) for name in ("single", "joined"))
        ends = [info.position + info.size_in_bytes for info in headers(content)]
        for start, end in pairwise((0, *ends)):
            single.append_as_follower(content[start:end])
        cuts = sorted({0, len(content), *rng.sample(ends, min(3, len(ends)))})
        for start, end in pairwise(cuts):
            joined.append_as_follower(content[start:end])
        for log in (single, joined):
            assert content_of(log) == content
            log.maybe_increment_high_watermark(log.log_end_offset)
            assert log.log_end_offset == leader.log_end_offset
            assert log.leader_epoch_cache.entries == leader.leader_epoch_cache.entries
            assert log.producer_state.first_unstable_offset == leader.producer_state.first_unstable_offset
            log.close()
        assert files_of(Path(root) / "joined") == files_of(Path(root) / "single")


def test_a_marker_that_cannot_be_read_keeps_what_came_before_it_and_nothing_else(tmp_path: Path) -> None:
    """A batch would be in the log that producers' state does not know, and so a transaction that never ends."""
    leader = open_log(tmp_path / "leader")
    append(leader, batch(producer_id=7, epoch=0, sequence=0, transactional=True))
    append(leader, marker(7, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    append(leader, batch())
    content = bytearray(content_of(leader))
    _, control, _ = headers(bytes(content))
    plain = batch(producer_id=7, epoch=0, sequence=1, transactional=True)
    # A batch of the log's own offsets that claims to be a control batch, with a record that is none.
    plain[21:23] = (int.from_bytes(plain[21:23], "big") | 0x20).to_bytes(2, "big")
    plain[:8] = (1).to_bytes(8, "big")
    plain[17:21] = crc32c(plain[21:]).to_bytes(4, "big")
    follower = open_log(tmp_path / "follower")
    with pytest.raises(InvalidRecordError):
        follower.append_as_follower(bytes(content[: control.position]) + bytes(plain))
    assert follower.log_end_offset == 1
    assert content_of(follower) == content[: control.position]


def test_a_disk_that_is_full_takes_all_of_a_write_or_nothing(tmp_path: Path) -> None:
    """The follower would go on behind half a batch, or believe in leader epochs of records that it does not have."""
    leader = open_log(tmp_path / "leader")
    for i in range(6):
        append(leader, batch([b"%05d" % i]), leader_epoch=i)
    content = content_of(leader)
    files = FullFiles()
    follower = open_log(tmp_path / "follower", env=environment(files))
    ends = [info.position + info.size_in_bytes for info in headers(content)]
    follower.append_as_follower(content[: ends[1]])
    files.left = ends[0] * 2 + 10
    with pytest.raises(KafkaStorageError) as raised:
        follower.append_as_follower(content[ends[1] :])
    assert isinstance(raised.value.__cause__, OSError) and raised.value.__cause__.errno == errno.ENOSPC
    assert (follower.log_end_offset, follower.latest_epoch) == (2, 1)
    files.left = None
    follower.append_as_follower(content[ends[1] :])
    assert content_of(follower) == content
    assert follower.leader_epoch_cache.entries == leader.leader_epoch_cache.entries


def test_a_segment_begins_behind_a_gap_before_its_first_batch_is_there(tmp_path: Path) -> None:
    """A follower of a compacted log would find its own log out of order, and copy nothing any more."""
    leader, files = open_log(tmp_path / "leader"), FullFiles()
    config = LogConfig(cleanup_policy=frozenset({"compact"}), internal_segment_bytes=ONE)
    follower = open_log(tmp_path / "follower", config, env=environment(files))
    for _ in range(6):
        append(leader, batch())
    content = content_of(leader)
    follower.append_as_follower(content[:ONE])
    files.left = ONE  # What a roll writes fits, and the batch then does not.
    with pytest.raises(KafkaStorageError):
        follower.append_as_follower(content[5 * ONE :])
    assert (follower.local.segments.active.base_offset, follower.log_end_offset) == (5, 1)
    follower.check_invariants()
    files.left = None
    follower.append_as_follower(content[5 * ONE :])
    assert content_of(follower) == content[:ONE] + content[5 * ONE :]


@given(sizes=st.lists(st.integers(0, 40), max_size=30), rest=st.integers(0, ONE), most=st.integers(1, 7))
def test_portions_are_whole_batches_of_all_that_came(sizes: list[int], rest: int, most: int) -> None:
    """A batch that is cut in two would be refused, and fetched again and again."""
    whole = [bytes(batch([bytes(size)])) for size in sizes]
    data = b"".join(whole) + bytes(batch())[:rest]
    parts = list(portions(memoryview(data), most))
    assert b"".join(parts) == data
    for number, part in enumerate(parts[:-1]):
        assert bytes(part) == b"".join(whole[number * most : (number + 1) * most])
    assert len(parts) == max(1, -(-(len(sizes) + (rest == ONE)) // most))
