"""A follower's log is cut in slices, and is then what a cut in one turn would have left.

Also of `kbroker.storage.log.cut_snapshot`.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
import uvloop

from kbroker._fast.base.slices import Slices
from kbroker.config import LogConfig
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.log_cut import cut_log
from kbroker.replication.partition import Partition
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.producer_snapshot import encode_snapshot
from kbroker.storage.log.unified_log import UnifiedLog
from tests.replication.spoken_for import LEADER, OURS
from tests.storage.batches import batch, marker, open_log

SMALL = LogConfig(segment_bytes=4096)
PRODUCERS = 4


def written(directory: Path, seed: int) -> UnifiedLog:
    """A log of several segments, with idempotent batches and transactions, some of them open."""
    rng, log = random.Random(seed), open_log(directory, SMALL)
    sequences, is_open = [0] * PRODUCERS, [False] * PRODUCERS
    for _ in range(300):
        producer = rng.randrange(PRODUCERS)
        if is_open[producer] and rng.random() < 0.3:
            ends = marker(producer, 0, abort=rng.random() < 0.5)
            log.append_as_leader(ends, 0, origin=AppendOrigin.COORDINATOR)
            is_open[producer] = False
            continue
        values = [b"x" * rng.randrange(100)] * rng.randint(1, 4)
        transactional = producer % 2 == 1
        log.append_as_leader(
            batch(values, producer_id=producer, epoch=0, sequence=sequences[producer], transactional=transactional),
            0,
        )
        sequences[producer] += len(values)
        is_open[producer] |= transactional
    log.maybe_increment_high_watermark(log.log_end_offset // 3)
    return log


def followed(log: UnifiedLog) -> Partition:
    image = PartitionImage(0, LEADER, 0, (LEADER, OURS), (LEADER,))
    return Partition("t", 0, bytes(15) + b"\1", log, OURS, image, FetchPurgatory(asyncio.get_running_loop()))


def producers_of(log: UnifiedLog) -> tuple[bytes, list[object], int | None, int]:
    """What a snapshot would have, the batches that a retry is known by, and what bounds a committed reader."""
    state = log.producer_state
    by_id = sorted(state.producers.values(), key=lambda entry: entry.producer_id)
    remembered: list[object] = [each.remembered() for each in by_id]
    return bytes(encode_snapshot(by_id)), remembered, state.first_unstable_offset, state.map_end_offset


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_in_slices_leaves_what_a_cut_at_once_does(seed: int, tmp_path: Path) -> None:
    """A producer could not go on, or a transaction would be read before it has ended."""

    async def scenario() -> None:
        sliced, at_once = written(tmp_path / "sliced", seed), written(tmp_path / "once", seed)
        rng, slices = random.Random(seed), Slices(slice_us=0)
        partition = followed(sliced)
        while sliced.log_end_offset > 0:
            offset = rng.randrange(sliced.log_end_offset)
            assert await cut_log(partition, offset, slices.pace())
            at_once.truncate_to(offset)
            assert sliced.log_end_offset == at_once.log_end_offset == offset
            assert producers_of(sliced) == producers_of(at_once)
        assert slices.count

    uvloop.run(scenario())


def test_a_producers_last_five_batches_are_known_behind_a_cut(tmp_path: Path) -> None:
    """A follower that had cut its log refused, as the next leader, retries of what it had (KRaft seed 63265)."""

    async def scenario() -> None:
        log = open_log(tmp_path, SMALL)
        for sequence in range(8):
            log.append_as_leader(batch([b"x"], producer_id=1, epoch=0, sequence=sequence), 0)
        assert await cut_log(followed(log), 7, Slices(slice_us=0).pace())
        retried = log.append_as_leader(batch([b"x"], producer_id=1, epoch=0, sequence=3), 0)
        assert (retried.first_offset, log.log_end_offset) == (3, 7)

    uvloop.run(scenario())


def test_a_cut_reads_nothing_back_in_its_own_turn(tmp_path: Path) -> None:
    """With a large segment all clients would wait for it."""

    async def scenario() -> None:
        log = written(tmp_path, 1)
        end = log.local.segments.active.base_offset - 1
        assert await cut_log(followed(log), end, Slices(slice_us=0).pace())
        assert log.producer_state.last_snapshot_offset == end

    uvloop.run(scenario())


def test_a_partition_that_leads_by_now_is_not_cut(tmp_path: Path) -> None:
    """Records that were acknowledged since would be lost."""

    async def scenario() -> None:
        log = written(tmp_path, 2)
        partition, slices, before = followed(log), Slices(slice_us=0), log.log_end_offset
        cutting = asyncio.ensure_future(cut_log(partition, 10, slices.pace()))
        while not slices.busy:
            await asyncio.sleep(0)
        partition.follow(PartitionImage(0, OURS, 1, (LEADER, OURS), (OURS,)))
        assert not await cutting
        assert log.log_end_offset == before

    uvloop.run(scenario())


def test_segments_that_retention_takes_meanwhile_are_not_read(tmp_path: Path) -> None:
    """The directory would count as failed because of a file that is gone."""

    async def scenario() -> None:
        log, same = written(tmp_path / "log", 3), written(tmp_path / "same", 3)
        offset = log.log_end_offset - 1
        slices = Slices(slice_us=0)
        for each in (log, same):
            each.producer_state.remove_snapshots_after(0)
        cutting = asyncio.ensure_future(cut_log(followed(log), offset, slices.pace()))
        while not slices.busy:
            await asyncio.sleep(0)
        for each in (log, same):
            each.maybe_increment_high_watermark(each.log_end_offset)
            each.delete_records_before(each.local.segments.active.base_offset)
        assert await cutting
        same.truncate_to(offset)
        assert producers_of(log) == producers_of(same)

    uvloop.run(scenario())
