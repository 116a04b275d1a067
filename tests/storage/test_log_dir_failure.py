"""A log directory that gives I/O errors: every kind of operation notices, it alone goes, a restart heals.

Also of `kbroker.storage.directories.directory_description`, `kbroker.storage.directories.log_dir_offline`,
`kbroker.storage.directories.managed_logs`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker._fast.log.index import TAIL_ENTRIES
from kbroker.config import LogConfig
from kbroker.errors import KafkaError, KafkaStorageError
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import Buffer, FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.partition_metadata import PartitionMetadata
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition, random_uuid
from tests.compat.waiting import wait_for
from tests.storage.batches import UNSYNCED_FILES, append, batch, marker, read_all
from tests.storage.failing_directory import FailingDirectory
from tests.storage.two_directories import CLUSTER, PRODUCED, SMALL, TOPIC_ID, TOPICS, Two

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), internal_segment_bytes=400, index_interval_bytes=50)
DISK_ERRORS = [errno.EIO, errno.EROFS, errno.ENXIO]
NOT_THE_DISK = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOENT]


def fails(action: Callable[[], object]) -> None:
    with pytest.raises(KafkaError):
        action()


def delete(two: Two) -> None:
    fails(lambda: two.manager.delete_log(two.bad.topic_partition))
    # It is no log of this broker any more, and what is on the disk is set aside by the next start.
    two.manager.logs[two.bad.topic_partition] = two.bad


def checkpoint(two: Two) -> None:
    two.bad.delete_records_before(1)
    futures = two.manager.checkpoints.save_log_starts()
    assert sum(future.result() is not None for future in futures) == 1


def periodic_checkpoint(two: Two) -> None:
    two.manager.checkpoints.start_recovery_points()
    wait_for(lambda: two.failed, "the checkpoint to fail")


def flush_later(two: Two) -> None:
    two.bad.flush_later()
    wait_for(lambda: two.failed, "the flush to fail")


def retention(two: Two) -> None:
    two.bad.config = replace(two.bad.config, retention_ms=1)
    two.clock.now += 10_000_000
    asyncio.run(two.manager.retention.run())


def delete_files(two: Two) -> None:
    """The files of deleted segments, which a thread takes off the disk."""
    two.files.heal()
    two.bad.config = replace(two.bad.config, file_delete_delay_ms=1000)
    two.bad.delete_records_before(8)
    two.clock.now += 2_000
    two.files.fail(errno.EIO, "unlink")
    two.manager.run_due()
    wait_for(lambda: two.failed, "the deletion to fail")


def read(log: UnifiedLog) -> object:
    log.local.segments.first.close_files()
    return log.read(0, 1 << 20, FetchIsolation.LOG_END, True)


OPERATIONS: dict[str, tuple[Callable[[Two], object], tuple[str, ...]]] = {
    "append": (lambda two: fails(lambda: append(two.bad, batch([b"x"]))), ("pwrite",)),
    "roll": (lambda two: fails(two.bad.roll), ("open",)),
    "fetch": (lambda two: fails(lambda: read(two.bad)), ("open", "pread")),
    "flush": (lambda two: fails(two.bad.flush), ("fsync",)),
    "flush aside": (flush_later, ("fsync",)),
    "truncate": (lambda two: fails(lambda: two.bad.truncate_to(PRODUCED - 1)), ("ftruncate",)),
    "truncate and replay": (
        lambda two: fails(lambda: two.bad.truncate_to(PRODUCED - 1)),
        ("ftruncate", "pread", "list"),
    ),
    "truncate fully": (lambda two: fails(lambda: two.bad.truncate_fully_and_start_at(50)), ("rename",)),
    "delete records": (lambda two: fails(lambda: two.bad.delete_records_before(8)), ("rename",)),
    "retention": (retention, ("rename",)),
    "delete files": (delete_files, ("unlink",)),
    "checkpoint": (checkpoint, ("pwrite",)),
    "checkpoint by rename": (checkpoint, ("rename",)),
    "periodic checkpoint": (periodic_checkpoint, ("open",)),
    "look at the space": (lambda two: asyncio.run(two.manager.watch.run()), ("statvfs",)),
}


def write_index(two: Two) -> None:
    """So many entries that they are written: the appends themselves are good ones."""
    two.bad.config = replace(two.bad.config, index_interval_bytes=0, internal_segment_bytes=None)
    two.files.fail(errno.EIO, "open")
    for _ in range(TAIL_ENTRIES + 2):
        append(two.bad, batch())


def write_transaction_index(two: Two) -> None:
    append(two.bad, batch(producer_id=7, epoch=0, sequence=0, transactional=True))
    two.files.fail(errno.EIO, "open")
    append(two.bad, marker(7, 0, abort=True), origin=AppendOrigin.COORDINATOR)


def cut_a_failed_write(two: Two) -> None:
    """No space for the write, which costs the request alone; but what came of it cannot be cut either."""

    def full(files: FailingDirectory, fd: int, data: Buffer, position: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FailingDirectory, "pwrite", full)
        two.files.fail(errno.EIO, "ftruncate")
        fails(lambda: append(two.bad, batch()))


def assign_topic_id(two: Two) -> None:
    two.bad.partition_metadata = PartitionMetadata(two.files, two.bad.directory, exists=False)
    two.files.fail(errno.EIO, "open")
    fails(lambda: two.bad.assign_topic_id(TOPIC_ID))


@pytest.mark.parametrize("act", [write_index, write_transaction_index, cut_a_failed_write, assign_topic_id])
def test_an_error_that_no_client_hears_of_takes_the_directory_offline(
    tmp_path: Path, act: Callable[[Two], None]
) -> None:
    """The broker would go on for days on a disk that loses what it writes, with a line in its log for each."""
    two = Two(tmp_path, **{"transaction.partition.verification.enable": "false"})
    two.bad.roll()
    two.bad.local.wait_for_flushes()
    act(two)
    assert two.failed
    two.files.fail(errno.EIO)
    two.check_that_the_rest_serves()


@pytest.mark.parametrize("number", DISK_ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_takes_its_directory_offline_and_no_other(tmp_path: Path, operation: str, number: int) -> None:
    """A broker would answer from a disk that has lost writes, or stop serving the disks that work."""
    two = Two(tmp_path)
    act, calls = OPERATIONS[operation]
    two.files.fail(number, *calls)
    act(two)
    assert two.failed, f"nobody told of {two.files.failed}"
    two.files.fail(number)
    two.check_that_the_rest_serves()
    two.check_restart()


@pytest.mark.parametrize("number", NOT_THE_DISK, ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", ["append", "roll", "fetch", "delete records"])
def test_errors_that_heal_by_themselves_cost_one_request_and_no_directory(
    tmp_path: Path, operation: str, number: int
) -> None:
    """A full disk, or a process out of descriptors, would take every partition of a directory away until a restart."""
    two = Two(tmp_path)
    act, calls = OPERATIONS[operation]
    two.files.fail(number, *calls)
    act(two)
    two.files.heal()
    assert not two.failed
    append(two.bad, batch([b"and on"]))
    assert read_all(two.bad)[-1][1] == b"and on"
    two.manager.shutdown()
    two.check_restart(expected=PRODUCED + 1)


def test_an_fsync_without_space_is_a_failure(tmp_path: Path) -> None:
    """The system has dropped what it could not write, and would report the next fsync as a success."""
    two = Two(tmp_path)
    two.files.fail(errno.ENOSPC, "fsync")
    fails(two.bad.flush)
    assert two.failed
    two.check_that_the_rest_serves()
    two.check_restart()


def test_a_failed_clean_is_the_directory_s_failure(tmp_path: Path) -> None:
    """The cleaner would try again for ever, on a disk whose files it is about to replace."""
    two = Two(tmp_path, COMPACTED)
    two.files.fail(errno.EIO, "pread", "open")
    asyncio.run(two.manager.cleaner.run())
    assert two.failed
    assert not two.manager.cleaner.uncleanable
    two.check_that_the_rest_serves()
    two.check_restart()


def test_the_cleaner_s_checkpoint_tells_too(tmp_path: Path) -> None:
    """Every start would compact the whole log again, without anybody knowing why."""
    two = Two(tmp_path, COMPACTED)
    two.files.fail(errno.EIO, "rename")
    asyncio.run(two.manager.cleaner.run())
    assert two.failed
    two.check_that_the_rest_serves()
    two.check_restart()


def test_a_deleted_partition_whose_disk_fails_is_gone_all_the_same(tmp_path: Path) -> None:
    """A topic would come back with its records once its disk is repaired."""
    two = Two(tmp_path)
    two.files.fail(errno.EIO, "rename")
    delete(two)
    assert two.failed
    two.check_that_the_rest_serves()
    again = two.make(UNSYNCED_FILES)
    again.start(CLUSTER, {"other": KnownTopic(random_uuid(), SMALL)})
    assert again.logs == {}
    assert len(list(Path(two.bad_path).glob("t-*-stray"))) == 1
    again.shutdown()


@pytest.mark.parametrize("metadata", ["kept", "torn by a power cut"])
def test_a_topic_made_again_while_a_directory_was_away_has_one_place(metadata: str, tmp_path: Path) -> None:
    """A repaired disk would bring its old partition back beside the new one, and the broker would refuse to start."""
    two = Two(tmp_path)
    lost = two.bad.topic_partition
    two.files.fail(errno.EIO)
    fails(lambda: append(two.bad, batch()))
    two.manager.drop_failed()
    two.manager.delete_log(two.good.topic_partition)
    new_id = random_uuid()
    log = two.manager.get_or_create_log(lost, new_id, SMALL)
    assert log.parent == two.good_path
    append(log, batch([b"new"]))
    two.manager.shutdown()
    if metadata != "kept":
        Path(log.directory, "partition.metadata").write_bytes(b"")
    again = two.make(UNSYNCED_FILES)
    again.start(CLUSTER, {"t": KnownTopic(new_id, SMALL)})
    assert again.logs[lost].parent == two.good_path
    assert [value for _, value in read_all(again.logs[lost])] == [b"new"]
    assert len(list(Path(two.bad_path).glob("t-*-stray"))) == 1
    again.shutdown()


def test_a_deleted_topic_that_lies_in_two_directories_does_not_stop_a_start(tmp_path: Path) -> None:
    """A broker would not come back until someone removes a directory of a topic that nobody has any more."""
    two = Two(tmp_path)
    lost = two.bad.topic_partition
    two.files.fail(errno.EIO)
    fails(lambda: append(two.bad, batch()))
    two.manager.drop_failed()
    append(two.manager.get_or_create_log(lost, random_uuid(), SMALL), batch())
    two.manager.shutdown()
    again = two.make(UNSYNCED_FILES)
    again.start(CLUSTER, {"other": KnownTopic(random_uuid(), SMALL)})
    assert again.logs == {}
    for path in (two.good_path, two.bad_path):
        assert list(Path(path).glob(f"t-{lost.partition}.*-stray"))
    again.shutdown()


def test_a_new_partition_goes_to_the_next_directory_when_the_best_one_fails(tmp_path: Path) -> None:
    """A topic would be made with partitions that nobody can write to, although there is a disk that works."""
    two = Two(tmp_path)
    for index in range(5, 8):
        two.manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, SMALL)
    two.files.fail(errno.EIO, "mkdir")
    made = [two.manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, SMALL) for index in range(8, 12)]
    assert {log.parent for log in made} == {two.good_path}
    assert two.failed


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_directory_that_vanishes_is_noticed_although_its_files_are_open(tmp_path: Path, how: str) -> None:
    """Records would be acknowledged into files that no name leads to, and be gone with the next restart."""
    two = Two(tmp_path, LogConfig())
    bad = Path(two.bad_path)
    bad.rename(tmp_path / "elsewhere")
    if how == "replaced":
        bad.mkdir()
        (bad / ".lock").touch()
    append(two.bad, batch())
    asyncio.run(two.manager.watch.run())
    assert two.failed
    shutil.rmtree(bad, ignore_errors=True)
    assert two.manager.drop_failed() == [two.bad.topic_partition]
    two.manager.shutdown()
    (tmp_path / "elsewhere").rename(bad)
    two.check_restart(expected=PRODUCED + 1)


def test_all_that_wait_for_an_fsync_are_told_when_it_fails(tmp_path: Path) -> None:
    """A producer would wait for ever for a disk that is gone."""

    async def scenario() -> None:
        two = Two(tmp_path, **{"kbroker.fsync": "commit"})
        loop = asyncio.get_running_loop()
        answers: list[KafkaError | None] = []
        two.manager.attach(loop, lambda log: answers.append(None), lambda log, error: answers.append(error))
        two.files.fail(errno.EIO, "fsync")
        for log in (two.bad, two.good):
            last = log.append_as_leader(batch(), 0).last_offset
            assert log.committer is not None and log.committer.holds(last)
        woken = asyncio.Event()
        two.manager.failures.listen(lambda: loop.call_soon_threadsafe(woken.set))
        await asyncio.wait_for(woken.wait(), 60)
        two.manager.drop_failed()
        async with asyncio.timeout(60):
            while {type(answer) for answer in answers} != {type(None), KafkaStorageError}:
                await asyncio.sleep(0)
        two.manager.shutdown()

    asyncio.run(scenario())


@pytest.mark.parametrize("call", ["open", "list", "pread", "mmap"])
def test_a_directory_that_fails_while_logs_are_loaded_is_left_out(tmp_path: Path, call: str) -> None:
    """One bad disk would keep the whole broker from starting."""
    two = Two(tmp_path)
    two.manager.shutdown()
    two.files.fail(errno.EIO, call)
    again = two.make(two.files)
    again.start(CLUSTER, TOPICS)
    if call == "mmap":
        # Indexes are mapped when they are asked for.
        for log in [log for log in again.logs.values() if log.parent == two.bad_path]:
            fails_or_reads(log)
        again.drop_failed()
    assert set(again.logs) == {two.good.topic_partition}
    assert list(again.failures.offline) == [two.bad_path]
    append(again.logs[two.good.topic_partition], batch())
    again.shutdown()
    two.check_restart()


def fails_or_reads(log: UnifiedLog) -> None:
    with pytest.raises(KafkaStorageError):
        log.read(0, 1 << 20, FetchIsolation.LOG_END, True)


def test_the_first_directory_has_the_metadata_and_must_work(tmp_path: Path) -> None:
    """A broker without its topics would tell its clients that their data is gone."""
    two = Two(tmp_path)
    two.manager.shutdown()
    files = FailingDirectory(two.good_path)
    files.fail(errno.EIO)
    manager = two.make(files)
    with pytest.raises(LogDirError, match=r"the first of log\.dirs has the metadata"):
        manager.open_dirs()
    files.heal()
    two.check_restart()


def test_the_channel_takes_each_directory_once_whoever_reports_it(tmp_path: Path) -> None:
    """A thousand requests a second to a dead disk would fill the memory with reports of it."""
    channel = LogDirFailureChannel(FileSystem())
    channel.watch([str(tmp_path / name) for name in "abc"])
    woken: list[None] = []
    channel.listen(lambda: woken.append(None))
    error = OSError(errno.EIO, "I/O error")

    def report(name: str) -> None:
        for _ in range(500):
            channel.report(f"{tmp_path}/{name}/t-0/0.log", "reading", error)

    threads = [threading.Thread(target=report, args=(name,)) for name in "ababab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(woken) == 2
    taken = {channel.take_next_offline_log_dir() for _ in range(2)}
    assert taken == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert channel.take_next_offline_log_dir() is None
    assert not channel.report(f"{tmp_path}/elsewhere/file", "reading", error)
    assert not channel.report(f"{tmp_path}/ab/file", "reading", error), "a name that only begins like one"


def test_a_file_that_is_gone_is_its_partition_s_affair(tmp_path: Path) -> None:
    """Somebody who removes one file by hand would take every partition of the disk away."""
    two = Two(tmp_path)
    bad = two.bad
    for segment in bad.local.segments:
        segment.close_files()
    os.unlink(bad.local.segments.first.path)
    with pytest.raises(KafkaStorageError):
        bad.read(0, 1 << 20, FetchIsolation.LOG_END, True)
    assert not two.failed
    append(bad, batch())
    two.manager.release()
