"""Text checkpoints, partition metadata and the leader epoch cache.

Also of `kbroker.storage.files.replaced_file`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import InconsistentTopicIdError
from kbroker.storage.files.checkpoints import (
    CorruptCheckpointError,
    OffsetCheckpoint,
    decode_checkpoint,
    decode_offsets,
    encode_offsets,
)
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.partition_metadata import (
    CorruptPartitionMetadataError,
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
)
from kbroker.types import ZERO_UUID, TopicPartition, random_uuid

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
OFFSETS = st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 999)), st.integers(0, 1 << 62), max_size=20)


@given(OFFSETS)
def test_offset_checkpoint_round_trip(offsets: dict[TopicPartition, int]) -> None:
    """Recovery points would be lost and every start would read all data."""
    assert decode_offsets(encode_offsets(offsets), "x") == offsets


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\nx\n",
        b"zero",
        b"0\n1\na 0\n",
        b"0\n1\na b c\n",
        b"0\n1\na 0 1 9\n",
        b"\xff\xfe\n1\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 2147483648 1\n",
    ],
)
def test_damaged_checkpoint_is_refused_whole(data: bytes, tmp_path: Path) -> None:
    """Half a checkpoint would be taken for the truth about some partitions."""
    with pytest.raises(CorruptCheckpointError):
        decode_offsets(data, "x")
    (tmp_path / "checkpoint").write_bytes(data)
    assert OffsetCheckpoint(SYSTEM_FILES, str(tmp_path / "checkpoint")).read() == {}


def test_checkpoint_is_written_only_when_it_changes(tmp_path: Path) -> None:
    """An idle broker would wake the disk every minute."""
    checkpoint = OffsetCheckpoint(SYSTEM_FILES, str(tmp_path / "c"))
    assert checkpoint.read() == {}
    assert checkpoint.write({TopicPartition("a", 0): 5})
    assert not checkpoint.write({TopicPartition("a", 0): 5})
    assert checkpoint.write({TopicPartition("a", 0): 6})
    assert checkpoint.read() == {TopicPartition("a", 0): 6}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_partition_metadata_binds_once(tmp_path: Path) -> None:
    """The data of a deleted topic would show up under a new topic of the same name."""
    first, second = random_uuid(), random_uuid()
    metadata = PartitionMetadata(SYSTEM_FILES, str(tmp_path), exists=False)
    assert metadata.topic_id == ZERO_UUID
    metadata.assign(first, TopicPartition("a", 0))
    again = PartitionMetadata(SYSTEM_FILES, str(tmp_path), exists=True)
    again.assign(first, TopicPartition("a", 0))
    with pytest.raises(InconsistentTopicIdError, match="already contained topic ID"):
        again.assign(second, TopicPartition("a", 0))


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 1\ntopic_id: uHAmhZDVQjmD7uG5fc8Vbg", b"version: 0\n", b"version: 0\ntopic_id: short", b"\xff"],
)
def test_damaged_partition_metadata_is_refused_and_written_again(data: bytes, tmp_path: Path) -> None:
    """A file emptied by a crash would keep its partition offline."""
    with pytest.raises(CorruptPartitionMetadataError):
        decode_partition_metadata(data, "x")
    (tmp_path / "partition.metadata").write_bytes(data)
    metadata = PartitionMetadata(SYSTEM_FILES, str(tmp_path), exists=True)
    topic_id = random_uuid()
    metadata.assign(topic_id, TopicPartition("a", 0))
    assert (tmp_path / "partition.metadata").read_bytes() == encode_partition_metadata(topic_id)


def cache_of(tmp_path: Path, *pairs: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(SYSTEM_FILES, str(tmp_path))
    for epoch, start in pairs:
        cache.assign(epoch, start)
    return cache


def test_end_offsets_of_epochs_follow_kafka(tmp_path: Path) -> None:
    """A follower would truncate too little and keep records that its leader never had."""
    cache = cache_of(tmp_path, (2, 10), (4, 20), (7, 35))
    expected = {-1: (-1, -1), 0: (0, 10), 2: (2, 20), 3: (2, 20), 4: (4, 35), 6: (4, 35), 7: (7, 50), 8: (-1, -1)}
    assert {epoch: tuple(cache.end_offset_for(epoch, 50)) for epoch in expected} == expected
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 7]


def test_epochs_survive_a_restart_and_truncation(tmp_path: Path) -> None:
    """Epochs of records that are gone would be reported to clients."""
    cache = cache_of(tmp_path, (0, 0), (1, 10), (3, 20), (5, 30))
    cache.truncate_from_start(15)
    cache.truncate_from_end(30)
    assert cache.entries == [(1, 15), (3, 20)]
    write_epochs(cache)
    assert cache.write() is None
    again = LeaderEpochCache(SYSTEM_FILES, str(tmp_path))
    assert again.load(exists=True)
    assert (again.entries, again.latest_epoch) == ([(1, 15), (3, 20)], 3)
    for damaged in (b"0\n5\n1 15\n", b"0\n1\n3000000000 0\n", b"0\n1\n1 9223372036854775808\n"):
        (tmp_path / "leader-epoch-checkpoint").write_bytes(damaged)
        assert not LeaderEpochCache(SYSTEM_FILES, str(tmp_path)).load(exists=True)
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"")
    assert LeaderEpochCache(SYSTEM_FILES, str(tmp_path)).load(exists=True), "Kafka makes it empty"


def write_epochs(cache: LeaderEpochCache) -> None:
    replacement = cache.write()
    assert replacement is not None
    replacement.run(SYSTEM_FILES)


def epochs_in(directory: Path) -> list[tuple[int, int]]:
    found = LeaderEpochCache(SYSTEM_FILES, str(directory))
    found.load(exists=True)
    return found.entries


class HaltedFiles(FileSystem):
    """Files of which one fsync does something else first."""

    def __init__(self) -> None:
        self.before: Callable[[], None] | None = None

    def sync_path(self, path: str) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        super().sync_path(path)


def test_epochs_that_change_during_the_fsync_are_the_ones_in_place(tmp_path: Path) -> None:
    """A thread would put epochs in place that the loop has replaced, or some that are not durable."""
    cache = cache_of(tmp_path, (0, 0))
    files = HaltedFiles()
    replacement = cache.write()
    assert replacement is not None and not (tmp_path / "leader-epoch-checkpoint").exists()

    def change() -> None:
        cache.assign(1, 5)
        assert cache.write() is replacement

    files.before = change
    replacement.run(files)
    assert epochs_in(tmp_path) == [(0, 0), (1, 5)]


def test_epochs_are_not_put_into_a_directory_that_was_given_up(tmp_path: Path) -> None:
    """A topic made again under its old name would get the epochs of the one before."""
    cache = cache_of(tmp_path, (0, 0))
    files = HaltedFiles()
    replacement = cache.write()
    assert replacement is not None
    files.before = cache.withdraw
    replacement.run(files)
    assert not (tmp_path / "leader-epoch-checkpoint").exists()
    write_epochs(cache)
    assert epochs_in(tmp_path) == [(0, 0)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=30))
def test_epochs_and_their_starts_always_ascend(pairs: list[tuple[int, int]]) -> None:
    """A search over unordered epochs would give a follower a wrong end."""
    cache = LeaderEpochCache(SYSTEM_FILES, "/nowhere")
    for epoch, start in pairs:
        cache.assign(epoch, start)
    entries = cache.entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))


def test_empty_checkpoint_has_no_entries() -> None:
    """The empty files that a new Kafka directory holds would stop a start."""
    assert decode_checkpoint(b"", "x") == []
