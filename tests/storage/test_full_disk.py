"""Disks that are full or fail: what is in the log stays readable, and it goes on when they are well again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import ErrorCode, KafkaError, KafkaStorageError
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.space_guard import ROOM_BYTES, DirectorySpaceGuard
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.compat.waiting import wait_for
from tests.storage.batches import START_MS, HandClock, append, batch, environment, open_log, read_all
from tests.storage.full_files import FullFiles

SMALL_INDEX = LogConfig(index_interval_bytes=1)
A0 = TopicPartition("a", 0)
TOPIC_ID = random_uuid()


def fail(log: UnifiedLog, value: bytes = b"refused" * 40, data: bytearray | None = None) -> None:
    with pytest.raises(KafkaStorageError):
        append(log, batch([value]) if data is None else data)


def values(log: UnifiedLog) -> list[bytes | None]:
    return [value for _, value in read_all(log)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("written", [1, 30, 61, 100])
def test_a_write_that_fails_midway_leaves_the_last_whole_batch(tmp_path: Path, number: int, written: int) -> None:
    """Half a batch in the log would end every reader and the next start."""
    files = FullFiles()
    log = open_log(tmp_path, env=environment(files))
    append(log, batch([b"one"]))
    if number == errno.ENOSPC:
        files.left = written
    else:
        files.error = number
    fail(log)
    fail(log)
    assert log.log_end_offset == 1
    assert Path(log.local.segments.active.path).stat().st_size == log.size_bytes
    files.left, files.error = None, 0
    append(log, batch([b"two"]))
    assert values(log) == [b"one", b"two"]
    log.close(clean=False)
    again = open_log(tmp_path)
    again.check_invariants()
    assert values(again) == [b"one", b"two"]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call may take a part of the bytes and report success: the rest of the batch would be missing."""
    real = os.pwrite

    def short(fd: int, data: bytes, position: int) -> int:
        return real(fd, memoryview(data)[: (len(data) + 1) // 2], position)

    log = open_log(tmp_path)
    append(log, batch([b"one"]))
    monkeypatch.setattr(os, "pwrite", short)
    append(log, batch([b"two"]))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)
    fail(log)
    monkeypatch.setattr(os, "pwrite", real)
    append(log, batch([b"three"]))
    log.close(clean=False)
    assert values(open_log(tmp_path)) == [b"one", b"two", b"three"]


def test_a_refused_sequence_can_be_sent_again(tmp_path: Path) -> None:
    """An idempotent producer would be stuck with OUT_OF_ORDER_SEQUENCE once its disk is well again."""
    files = FullFiles()
    log = open_log(tmp_path, env=environment(files))
    append(log, batch([b"one"], producer_id=7, epoch=0, sequence=0))
    files.left = 10
    fail(log, data=batch([b"two"], producer_id=7, epoch=0, sequence=1))
    files.left = None
    assert append(log, batch([b"two"], producer_id=7, epoch=0, sequence=1)).first_offset == 1
    assert append(log, batch([b"two"], producer_id=7, epoch=0, sequence=1)).duplicate
    assert values(log) == [b"one", b"two"]


def test_a_failed_write_that_cannot_be_cut_off_is_never_shut_down_cleanly(tmp_path: Path) -> None:
    """A clean mark over a torn end would make the next start trust it."""
    files = FullFiles()
    log = open_log(tmp_path, env=environment(files))
    append(log, batch([b"one"]))
    files.error = errno.EIO
    files.failing = {"ftruncate"}
    fail(log)
    files.error = 0
    fail(log)
    with pytest.raises((OSError, KafkaError)):
        log.close()
    files.failing = set()
    log.close()
    assert values(open_log(tmp_path, clean=True)) == [b"one"]


def test_the_cut_that_failed_is_made_up_for_by_the_next_append(tmp_path: Path) -> None:
    """A disk that failed twice in a row would leave a partition that can never be written to again."""
    files = FullFiles()
    log = open_log(tmp_path, env=environment(files))
    append(log, batch([b"one"]))
    files.error = errno.EIO
    files.failing = {"ftruncate"}
    fail(log, b"long" * 100)
    files.error = 0
    files.failing = set()
    append(log, batch([b"two"]))
    log.close(clean=False)
    assert values(open_log(tmp_path)) == [b"one", b"two"]


def test_an_index_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    """A batch that was written would be refused, and the next one would get its offset a second time."""
    files = FullFiles()
    log = open_log(tmp_path, SMALL_INDEX, env=environment(files))
    for number in range(600):
        data = batch([b"%d" % number], timestamp=START_MS + number)
        # Room for the batch and not for 512 index entries.
        files.left = len(data) + 100
        append(log, data)
    assert log.log_end_offset == 600
    files.left = None
    append(log, batch([b"600"], timestamp=START_MS + 600))
    log.flush()
    assert values(log) == [b"%d" % number for number in range(601)]
    assert log.offset_for_timestamp(START_MS + 300).offset == 300  # type: ignore[union-attr]
    log.close()
    again = open_log(tmp_path, SMALL_INDEX, clean=True)
    assert read_all(again, 555)[0] == (555, b"555")


def test_a_roll_that_finds_no_space_can_be_repeated(tmp_path: Path) -> None:
    """A disk that fills up at a segment's end would leave the partition without an active segment."""
    config = LogConfig(internal_segment_bytes=200, index_interval_bytes=1)
    files = FullFiles()
    log = open_log(tmp_path, config, env=environment(files))
    append(log, batch([b"x" * 50]))
    files.left = 0
    for _ in range(3):
        fail(log, b"x" * 60)
    assert log.log_end_offset == 1
    files.left = None
    append(log, batch([b"y" * 60]))
    assert values(log) == [b"x" * 50, b"y" * 60]
    log.check_invariants()
    log.close(clean=False)
    assert values(open_log(tmp_path, config)) == [b"x" * 50, b"y" * 60]


def test_a_failed_fsync_holds_the_recovery_point(tmp_path: Path) -> None:
    """The system forgets an fsync's error: the next one succeeds although the bytes never reached the disk."""
    files = FullFiles()
    log = open_log(tmp_path, env=environment(files))
    append(log, batch([b"one"]))
    log.flush()
    append(log, batch([b"two"]))
    files.failing = {"fsync"}
    with pytest.raises(KafkaStorageError):
        log.flush()
    files.failing = set()
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.recovery_point == 1
    append(log, batch([b"three"]))
    with pytest.raises(OSError, match="an earlier fsync failed"):
        log.close()
    assert values(open_log(tmp_path, recovery_point=1)) == [b"one", b"two", b"three"]


# The watch over free space


def gate_with(files: FullFiles, free: int, reserve: int = 1000) -> DirectorySpaceGuard:
    files.free = free
    gate = DirectorySpaceGuard(files, "/data", reserve)
    gate.measure()
    return gate


def test_the_gate_closes_below_the_reserve_and_opens_again_with_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """The log would fill the rest of the disk with lines about the disk."""
    files = FullFiles()
    gate = gate_with(files, 5000)
    with caplog.at_level(logging.INFO, "kbroker.storage"):
        for free in (1000, 999, 998, 400, 999, 1001, 1124):
            files.free = free
            gate.measure()
            assert gate.closed == (free != 1000)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "kbroker.disk.reserve.bytes=1000" in caplog.text
        for free in (1125, 1000, 5000):
            files.free = free
            gate.measure()
            assert not gate.closed
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_coordinators_may_use_half_of_the_reserve() -> None:
    """Consumers could not commit what they read while somebody clears the disk."""
    files = FullFiles()
    gate = gate_with(files, 999)
    gate.check(AppendOrigin.COORDINATOR)
    with pytest.raises(KafkaStorageError):
        gate.check(AppendOrigin.CLIENT)
    files.free = 499
    gate.measure()
    with pytest.raises(KafkaStorageError):
        gate.check(AppendOrigin.COORDINATOR)
    assert gate.refused_count == 2


def test_no_reserve_never_closes() -> None:
    """kbroker.disk.reserve.bytes=0 would still refuse."""
    assert not gate_with(FullFiles(), 0, reserve=0).closed


class Log:
    """As much of a log as a gate looks at."""

    log_end_offset = 5


def test_a_write_that_finds_no_space_counts_as_refusing_until_something_has_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a reserve, or below a quota, every append would fail and monitoring show nothing."""
    files, log = FullFiles(), Log()
    gate = gate_with(files, 100, reserve=0)
    assert not gate.is_refusing
    with caplog.at_level(logging.INFO, "kbroker.storage"):
        for _ in range(3):
            gate.ran_out(log)
            gate.measure()
            assert gate.is_refusing and not gate.closed
        assert gate.refused_count == 3
        files.free += 4096
        gate.measure()
        assert gate.is_refusing, "a few bytes more or less do not say that there is room"
        files.free = 100 + ROOM_BYTES
        gate.measure()
        assert not gate.is_refusing
        gate.ran_out(log)
        log.log_end_offset += 1
        gate.measure()
        assert not gate.is_refusing, "the log that met it has grown"
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * 2


def manager_on(
    tmp_path: Path, files: FullFiles, clock: HandClock | None = None, activity: Callable[[], int] | None = None
) -> LogManager:
    config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path / "data"), "kbroker.disk.reserve.bytes": "1000000"})
    manager = LogManager(config, clock or HandClock(), files, activity=activity)
    manager.start("cluster-id-of-the-test1")
    return manager


def test_the_disks_are_looked_at_less_often_only_while_nobody_asks_and_there_is_much_room(tmp_path: Path) -> None:
    """A disk could run full between two looks; or a broker without clients would keep a processor awake."""
    files = FullFiles()
    files.free = 1 << 40
    requests = [0]
    manager = manager_on(tmp_path, files, activity=lambda: requests[0])
    watch = next(task for task in manager.periodic_tasks() if task.name == "watch the disks")
    assert callable(watch.interval_ms)

    def next_look_ms(free: int) -> int:
        files.free = free
        asyncio.run(watch.run())
        return watch.interval_ms()  # type: ignore[operator, no-any-return]

    assert [next_look_ms(1 << 40) for _ in range(3)] == [100, 500, 500]
    requests[0] += 1
    assert [next_look_ms(1 << 40) for _ in range(2)] == [100, 500]
    room = 4 << 30
    assert [next_look_ms(free) for free in (room + 999_999, room + 1_000_000, 0, room)] == [100, 500, 100, 100]
    manager.shutdown()
    nobody_tells = manager_on(tmp_path / "other", files)
    assert {nobody_tells.watch.interval_ms() for _ in range(3)} == {100}
    nobody_tells.shutdown()


def test_a_short_disk_refuses_produce_and_serves_the_rest(tmp_path: Path) -> None:
    """The last bytes would go to records, and nothing could be deleted, committed or restarted any more."""
    files = FullFiles()
    manager = manager_on(tmp_path, files)
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    append(log, batch([b"one"]))
    append(log, batch([b"two"]))
    files.free = 999_999
    manager.space_guards[0].measure()
    with pytest.raises(KafkaStorageError) as refusal:
        append(log, batch([b"three"]))
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    append(log, batch([b"offsets"]), origin=AppendOrigin.COORDINATOR)
    assert values(log) == [b"one", b"two", b"offsets"]
    assert log.delete_records_before(1)
    manager.delete_log(A0)
    # Not after file.delete.delay.ms: the space is needed now.
    manager.run_due()
    wait_for(
        lambda: not [path for path in (tmp_path / "data").iterdir() if path.is_dir()], "the space to be given back"
    )
    files.free = 2_000_000
    manager.space_guards[0].measure()
    append(manager.get_or_create_log(A0, TOPIC_ID, LogConfig()), batch([b"three"]))
    manager.shutdown()


def test_a_disk_that_gets_short_has_retention_look_at_once(tmp_path: Path) -> None:
    """What may be deleted would stay for minutes while every producer waits for its space."""
    files = FullFiles()
    clock = HandClock()
    manager = manager_on(tmp_path, files, clock)
    config = LogConfig(internal_segment_bytes=300, index_interval_bytes=50, retention_ms=1000)
    log = manager.get_or_create_log(A0, TOPIC_ID, config)
    for _ in range(20):
        append(log, batch([b"x" * 50], timestamp=clock.now_ms() - 5000))
    assert log.segment_count > 3
    asyncio.run(manager.watch.run())
    assert log.segment_count > 3
    files.free = 999_999
    asyncio.run(manager.watch.run())
    assert log.segment_count == 1
    # A thread takes them off the disk.
    wait_for(lambda: len(list((tmp_path / "data" / "a-0").glob("*.log*"))) == 1, "the files to go")
    manager.shutdown()


def test_a_write_without_space_closes_the_gate_at_once(tmp_path: Path) -> None:
    """Until the next look every append would try, fail and be logged."""
    files = FullFiles()
    manager = manager_on(tmp_path, files)
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    append(log, batch([b"one"]))
    files.left = 30
    fail(log)
    assert log.space_guard.closed
    files.left = None
    manager.space_guards[0].measure()
    append(log, batch([b"two"]))
    manager.shutdown()


def test_a_full_disk_at_the_stop_gets_no_clean_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next start would trust files that were never completed."""
    files = FullFiles()
    manager = manager_on(tmp_path, files)
    logs = [manager.get_or_create_log(TopicPartition("a", index), TOPIC_ID, SMALL_INDEX) for index in range(5)]
    for log in logs:
        for number in range(10):
            append(log, batch([b"%d" % number], timestamp=START_MS + number))
    files.left = 0
    manager.shutdown()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "5 of 5 logs were not closed cleanly" in caplog.text
    assert caplog.text.count("was not closed cleanly") == 1
    files.left = None
    again = manager_on(tmp_path, files)
    assert [log.log_end_offset for log in again.logs.values()] == [10] * 5
    again.shutdown()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_checkpoint_is_written_again_until_it_holds_what_it_should(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file would stay as old as the moment in which the disk was full, because nothing has changed since."""
    files = FullFiles()
    manager = manager_on(tmp_path, files)
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    append(log, batch([b"one"]))
    checkpoints = manager.checkpoints
    written = checkpoints[str(tmp_path / "data")].high_watermarks

    def comes_to_hold(offsets: dict[TopicPartition, int]) -> None:
        """With one of its turns: the first is left out where the write before is not quite over."""

        def holds() -> bool:
            checkpoints.start_high_watermarks()
            return written.read() == offsets

        wait_for(holds, f"the checkpoint to hold {offsets}")

    files.left = 0
    checkpoints.start_high_watermarks()
    wait_for(lambda: "Cannot write" in caplog.text, "the checkpoint to fail")
    files.left = None
    for _ in range(3):
        comes_to_hold({A0: 1})
    append(log, batch([b"two"]))
    comes_to_hold({A0: 2})
    # What is taken out of the file comes back, the same as it was.
    checkpoints.forget(str(tmp_path / "data"), A0)
    assert written.read() == {}
    comes_to_hold({A0: 2})
    manager.shutdown()


def test_a_disk_that_stays_full_is_told_once_and_again_after_it_had_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower tries every second, for each of its partitions: its log would fill what is left of the disk."""
    files = FullFiles()
    files.free = 1 << 40
    manager = manager_on(tmp_path, files)
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    for _ in range(2):
        caplog.clear()
        files.left = 0
        for _ in range(3):
            fail(log)
        assert sum("appending records failed" in each.getMessage() for each in caplog.records) == 1
        files.left = None
        files.free += 2 * ROOM_BYTES
        log.space_guard.measure()
    manager.shutdown()
