"""Moves of a partition between two log directories, at the level of files and logs.

Also of `kbroker.storage.directories.directory_plans`, `kbroker.storage.directories.future_dirs`,
`kbroker.storage.directories.log_placement`, `kbroker.storage.directories.log_relocation`,
`kbroker._fast.files.file_copy`.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from kbroker.errors import KafkaError, OutOfOrderSequenceNumberError
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.records.compression import Codec
from kbroker.storage.directories.future_log import INDEX_SUFFIXES, CopyStep, FutureLog
from kbroker.storage.directories.log_dirs import FUTURE_SUFFIX, marked_directory
from kbroker.storage.files.filesystem import SYSTEM_FILES, Buffer
from kbroker.storage.files.throttle import Throttle
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.log_segment import SWAP_SUFFIX
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from tests.cleaner.logs import clean, pairs_batch
from tests.compat.waiting import wait_for
from tests.storage.batches import UnsyncedFiles, append, batch, region_bytes
from tests.storage.moves import (
    CLUSTER,
    PART_BYTES,
    SMALL,
    TOPIC_ID,
    TP,
    VALUE,
    HeldThrottle,
    Inline,
    Storage,
    fill,
    names,
    records_of,
)


def test_a_moved_log_is_the_same_log(tmp_path: Path) -> None:
    """A partition would lose records, producers, epochs or aborted transactions on its way to another disk."""

    async def run() -> None:
        storage = Storage(tmp_path)
        storage.lead()
        fill(storage)
        log = storage.log
        log.assign_leader_epoch(3)
        append(log, batch([b"epoch 3"]), leader_epoch=3)
        log.delete_records_before(2)
        before = records_of(log), log.leader_epoch_cache.entries, log.log_end_offset, log.log_start_offset
        aborted = log.read(2, 1 << 20, FetchIsolation.TXN_COMMITTED, True).aborted_transactions
        waiting = log.read(2, 1 << 20, FetchIsolation.LOG_END, True)
        held = region_bytes(waiting)
        await storage.move(storage.b)
        assert storage.log is log
        assert log.parent == storage.b
        assert names(storage)[storage.b] == ["orders-0"]
        assert region_bytes(waiting) == held
        assert before == (
            records_of(log),
            log.leader_epoch_cache.entries,
            log.log_end_offset,
            log.log_start_offset,
        )
        copied = LeaderEpochCache(SYSTEM_FILES, log.directory)
        assert copied.load(exists=True) and copied.entries == before[1]
        assert log.read(2, 1 << 20, FetchIsolation.TXN_COMMITTED, True).aborted_transactions == aborted
        log.check_invariants()
        assert append(log, batch([b"p19"], producer_id=5, epoch=0, sequence=19)).duplicate
        with pytest.raises(OutOfOrderSequenceNumberError):
            append(log, batch([b"p"], producer_id=5, epoch=0, sequence=25))
        fill_more = [append(log, batch([VALUE])).first_offset for _ in range(30)]
        assert fill_more == list(range(before[2], before[2] + 30))
        await storage.move(storage.a)
        assert [record.offset for record in records_of(log)] == [
            *(record.offset for record in before[0]),
            *fill_more,
        ]
        storage.logs.shutdown()

    asyncio.run(run())
    again = Storage(tmp_path)
    assert again.log.parent == again.a
    assert again.log.log_start_offset == 2
    assert len(records_of(again.log)) > 100
    again.logs.run_due()
    wait_for(lambda: names(again)[again.b] == [], "what a move left to go")
    producer = again.log.producer_state.producers.get(5)
    assert producer is not None
    assert producer.last_sequence == 19
    again.logs.shutdown()


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_goes_on_where_the_move_was(tmp_path: Path, clean: bool) -> None:
    """A stop would throw away hours of copying, or leave a copy that nobody removes."""

    async def begin() -> None:
        storage = Storage(tmp_path)
        moves = storage.lead()
        fill(storage, 150)
        storage.log.flush()
        moves._throttle = HeldThrottle(PART_BYTES)
        moves.alter(TP, storage.b)
        future = storage.logs.plans.futures[TP]
        while future.copied_bytes < 5000:
            await asyncio.sleep(0.001)
        await moves.stop()
        assert storage.log.parent == storage.a
        if clean:
            storage.logs.shutdown()
        else:
            storage.logs.release()

    async def go_on() -> None:
        reads: list[int] = []

        class Counting(UnsyncedFiles):
            def pwrite(self, fd: int, data: Buffer, position: int) -> None:
                if "-future" in os.readlink(f"/proc/self/fd/{fd}"):
                    reads.append(len(data))
                super().pwrite(fd, data, position)

        storage = Storage(tmp_path, Counting())
        moves = storage.lead()
        expected = records_of(storage.log)
        size = storage.log.size_bytes
        moves.resume_found()
        assert TP in storage.logs.plans.futures
        await storage.settled()
        assert storage.log.parent == storage.b
        assert records_of(storage.log) == expected
        assert sum(reads) < size + size // 2
        storage.logs.run_due()
        wait_for(lambda: names(storage)[storage.b] == ["orders-0"], "what the first half left to go")
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(begin())
    asyncio.run(go_on())


def test_asked_back_the_move_is_called_off(tmp_path: Path) -> None:
    """An operator could not stop a move that was a mistake."""

    async def run() -> None:
        storage = Storage(tmp_path)
        moves = storage.lead()
        fill(storage, 150)
        moves._throttle = HeldThrottle(PART_BYTES)
        moves.alter(TP, storage.b)
        future = storage.logs.plans.futures[TP]
        while not future.copied_bytes:
            await asyncio.sleep(0.001)
        moves.alter(TP, storage.a)
        await storage.settled()
        assert names(storage) == {storage.a: ["orders-0"], storage.b: []}
        assert storage.logs.plans.totals.called_off == 1
        assert append(storage.log, batch([b"on"])).first_offset == 600
        storage.logs.shutdown()

    asyncio.run(run())


def test_a_replica_that_follows_moves_as_one_that_leads(tmp_path: Path) -> None:
    """kafka-reassign-partitions would wait in vain for all replicas but the leaders."""

    async def run() -> None:
        storage = Storage(tmp_path)
        storage.lead()
        fill(storage, 10)
        content, end = storage.log.read_bytes(0, 1 << 20), storage.log.log_end_offset
        topic = TopicImage(TP.topic, TOPIC_ID, (PartitionImage(0, 2, 1, (2, 1), (2, 1)),), False, storage.configs)
        storage.replicas.roles.apply_image(ClusterImage.of(CLUSTER, controller_id=1, topics=[topic]))
        assert TP in storage.replicas.followed
        await storage.move(storage.b)
        assert names(storage)[storage.b] == ["orders-0"]
        later = batch([b"later"])
        later[:8] = end.to_bytes(8, "big")
        storage.log.append_as_follower(later)
        assert storage.log.read_bytes(0, 1 << 20).startswith(content) and storage.log.log_end_offset == end + 1
        storage.logs.shutdown()

    asyncio.run(run())


@pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
def test_an_index_without_entries_need_not_have_a_file(tmp_path: Path, suffix: str) -> None:
    """A partition without records could not be moved any more after a power cut that took the file."""

    async def run() -> None:
        storage = Storage(tmp_path)
        storage.lead()
        (Path(storage.log.directory) / f"{0:020}{suffix}").unlink()
        await storage.move(storage.b)
        assert names(storage)[storage.b] == ["orders-0"]
        fill(storage, 10)
        storage.log.check_invariants()
        storage.logs.shutdown()

    asyncio.run(run())


def test_a_topic_deleted_on_the_move_is_gone_from_both(tmp_path: Path) -> None:
    """The copy of a deleted topic would come back as a partition with the next start."""

    async def run() -> None:
        storage = Storage(tmp_path)
        moves = storage.lead()
        fill(storage, 150)
        moves._throttle = HeldThrottle(PART_BYTES)
        moves.alter(TP, storage.b)
        future = storage.logs.plans.futures[TP]
        while not future.copied_bytes:
            await asyncio.sleep(0.001)
        storage.logs.delete_log(TP)
        await storage.settled()
        assert not storage.logs.plans.futures
        assert names(storage)[storage.b] == []
        assert [name[-7:] for name in names(storage)[storage.a]] == ["-delete"]
        storage.logs.shutdown()

    asyncio.run(run())


class FullFiles(UnsyncedFiles):
    """The target's file system takes no more than some bytes."""

    room = 3000

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        if "-future" in os.readlink(f"/proc/self/fd/{fd}"):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "b")
        super().pwrite(fd, data, position)


def test_a_full_disk_ends_the_move_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A move onto a disk that is too small would take the partition or the directory down with it."""

    async def run() -> None:
        storage = Storage(tmp_path, FullFiles())
        storage.lead()
        fill(storage, 60)
        expected = records_of(storage.log)
        await storage.move(storage.b)
        assert names(storage) == {storage.a: ["orders-0"], storage.b: []}
        assert storage.logs.plans.totals.failed == 1
        assert not storage.logs.failures.offline
        assert "serves on in" in caplog.text
        assert "No space left" in caplog.text
        append(storage.log, batch([b"on"]))
        assert records_of(storage.log)[:-1] == expected
        storage.logs.shutdown()

    asyncio.run(run())


def test_damage_is_not_carried_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bit that a disk has flipped would be copied, and the directory that shows where thrown away."""

    async def run() -> None:
        storage = Storage(tmp_path)
        storage.lead()
        fill(storage, 10)
        segment = storage.log.local.segments.first
        with open(segment.path, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        await storage.move(storage.b)
        assert names(storage) == {storage.a: ["orders-0"], storage.b: []}
        assert "Record is corrupt" in caplog.text
        storage.logs.shutdown()

    asyncio.run(run())


def test_the_log_changes_in_every_way_while_it_moves(tmp_path: Path) -> None:
    """Retention, truncation, compaction or a roll during a move would leave old bytes in the new directory."""

    async def run() -> None:
        configs = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        storage = Storage(tmp_path, configs=configs, settings={"log.cleaner.backoff.ms": "0"})
        moves = storage.lead()
        throttle = moves._throttle = HeldThrottle(PART_BYTES)
        log = storage.log

        def put(at: int) -> None:
            append(log, pairs_batch([(b"k%d" % (at % 400), b"%d" % at)], codec=Codec.NONE))

        for at in range(600):
            put(at)
        cleans = 0
        moves.alter(TP, storage.b)
        future = storage.logs.plans.futures[TP]
        while not future.copied_bytes:
            await asyncio.sleep(0.001)
        at = 600
        while moves.tasks:
            await asyncio.sleep(0.001)
            if at >= 1000:
                throttle.opened.set()
                continue
            put(at)
            at += 1
            if at % 40 == 0:
                await storage.logs.cleaner.run()
                cleans += 1
            if at % 90 == 0:
                log.truncate_to(max(log.local.segments.active.base_offset, log.log_end_offset - 3))
        assert log.parent == storage.b
        assert cleans > 1
        assert future.discarded_bytes > 0
        assert not storage.logs.cleaner.states.in_phase(storage.logs.cleaner.states.of(TP).phase)
        storage.logs.cleaner.settings = storage.logs.cleaner.settings._replace(enabled=True)
        put(at)
        expected = records_of(log)
        table = {record.key: record.value for record in expected}
        assert table.keys() == {b"k%d" % key for key in range(400)}
        await storage.logs.cleaner.run()
        assert {record.key: record.value for record in records_of(log)} == table
        log.check_invariants()
        await moves.stop()
        storage.logs.shutdown()
        again = Storage(tmp_path, configs=configs)
        assert {record.key: record.value for record in records_of(again.log)} == table
        again.logs.shutdown()

    asyncio.run(run())


@pytest.mark.parametrize("interval", ["commit", "os"])
def test_appends_that_wait_for_the_disk_are_answered(tmp_path: Path, interval: str) -> None:
    """With an fsync before the answer, producers would wait for ever for files that the log has left."""

    async def run() -> None:
        configs = {"segment.bytes": "1048576", "internal.segment.bytes": "100000"}
        storage = Storage(tmp_path, configs=configs, settings={"kbroker.fsync": interval})
        moves = storage.lead()
        log = storage.log
        partition = storage.replicas.partition(*TP)
        settled: list[KafkaError | None] = []
        sent = 0
        for target in (storage.b, storage.a, storage.b):
            moves.alter(TP, target)
            while moves.tasks:
                result = storage.replicas.append(partition, batch([VALUE]), origin=AppendOrigin.CLIENT)
                sent += 1
                if partition.is_acknowledged(result.last_offset, by_all=True):
                    settled.append(None)
                else:
                    partition.wait(result.last_offset, True, settled.append)
                await asyncio.sleep(0)
            assert log.parent == target
        async with asyncio.timeout(60):
            while len(settled) < sent:
                await asyncio.sleep(0.001)
        assert settled == [None] * sent
        assert log.high_watermark == log.log_end_offset == sent
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())


def test_the_way_back_keeps_what_the_way_there_had_to_delete(tmp_path: Path) -> None:
    """Back in a directory within file.delete.delay.ms, the log would lose files to deletions of its earlier stay."""

    async def run() -> None:
        storage = Storage(tmp_path, executor=Inline())
        moves = storage.lead()
        fill(storage)
        log = storage.log
        log.delete_records_before(30)
        retired = [name for name in os.listdir(log.directory) if name.endswith(".deleted")]
        assert retired
        await storage.move(storage.b)
        await storage.move(storage.a)
        # As compaction does, which gives segments the names of those that it replaces.
        for name in retired:
            Path(log.directory, name).write_bytes(b"")
        storage.clock.now += 61_000
        storage.logs.run_due()
        assert set(retired) <= set(os.listdir(log.directory))
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())


def test_a_resumed_copy_that_compaction_has_overtaken_is_made_anew(tmp_path: Path) -> None:
    """A move that a stop has interrupted would fail when a segment was compacted before its copy was gone on with."""

    async def run() -> None:
        storage = Storage(tmp_path, configs={**SMALL, "cleanup.policy": "compact"}, executor=Inline())
        moves = storage.lead()
        log = storage.log
        for at in range(60):
            append(log, pairs_batch([(b"k%d" % (at % 3), VALUE + b"%d" % at)]))
        log.roll()
        names_before = [os.path.basename(segment.path) for segment in log.local.segments]
        directory = f"{storage.b}/{marked_directory(*TP, FUTURE_SUFFIX)}"
        os.mkdir(directory)
        for name in names_before[:-1]:
            shutil.copy(f"{log.directory}/{name}", f"{directory}/{name}")
        future = FutureLog(storage.logs.environment.files, log, storage.b, directory)
        future.begin()
        assert future.next_steps()
        first = log.local.segments.first
        clean(log, now_ms=storage.clock.now)
        assert log.local.segments.first is not first
        while steps := future.next_steps():
            copied: list[int] = []
            future.carry_out(steps, Throttle(math.inf), copied)
            future.finished(steps, copied)
        assert future.end_offset == log.log_end_offset
        for segment in list(log.local.segments)[:-1]:
            name = os.path.basename(segment.path)
            assert Path(directory, name).read_bytes() == Path(segment.path).read_bytes()
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())


def test_a_segment_that_compaction_puts_in_place_while_it_is_copied_is_copied(tmp_path: Path) -> None:
    """A move would fail, with all that it has copied, as the segment's files lose their suffix `.swap` under it."""

    async def run() -> None:
        storage = Storage(tmp_path, configs={**SMALL, "cleanup.policy": "compact"}, executor=Inline())
        moves = storage.lead()
        log = storage.log
        for at in range(20):
            append(log, pairs_batch([(b"k%d" % at, VALUE)]))
        log.roll()
        first = log.local.segments.first
        first.rename_suffix(SWAP_SUFFIX)
        carry_out = FutureLog.carry_out

        def put_in_place_meanwhile(
            future: FutureLog, steps: list[CopyStep], throttle: Throttle, copied: list[int]
        ) -> None:
            if first.path.endswith(SWAP_SUFFIX):
                first.rename_suffix("")
            carry_out(future, steps, throttle, copied)

        with patch.object(FutureLog, "carry_out", put_in_place_meanwhile):
            await storage.move(storage.b)
        assert log.parent == storage.b
        assert storage.logs.plans.totals.failed == 0
        assert len(records_of(log)) == 20
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())
