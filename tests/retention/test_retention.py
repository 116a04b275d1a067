"""Retention on real logs: the files, the offsets and what a restart finds."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.manager.retention import MOST_AT_ONCE, Retention, decide, look_at, portion
from kbroker.types import ZERO_UUID, TopicPartition
from tests.storage.batches import START_MS, TP, HandClock, append, batch, environment, open_log, read_all
from tests.storage.faulty_files import CrashedError, FaultyFiles

DELETE = frozenset({"delete"})
HOUR_MS = 3_600_000


def config(**settings: object) -> LogConfig:
    values = {"internal_segment_bytes": 200, "retention_ms": -1, "file_delete_delay_ms": 0, **settings}
    return LogConfig(**values)  # type: ignore[arg-type]


def fill(log: UnifiedLog, count: int, *, first_timestamp: int = START_MS, step_ms: int = 1000) -> None:
    for at in range(count):
        append(log, batch([b"v%03d" % at], timestamp=first_timestamp + at * step_ms))


def retention(log: UnifiedLog, clock: HandClock) -> Retention:
    return Retention({log.topic_partition: log}, clock)


def test_old_segments_leave_the_log_and_the_disk(tmp_path: Path) -> None:
    """A topic would outgrow its retention.ms."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_ms=HOUR_MS), env=environment(clock=clock))
    fill(log, 12)
    task = retention(log, clock)
    assert task.apply(log) == 0
    clock.now = START_MS + HOUR_MS + 4_500
    before = log.segment_count
    gone = task.apply(log)
    assert 0 < gone < before
    assert log.log_start_offset == log.local.segments.first.base_offset
    assert read_all(log)[0][0] == log.log_start_offset
    assert len(list((tmp_path / "log").glob("*.log"))) == before - gone
    assert not list((tmp_path / "log").glob("*.deleted"))
    assert sum(deleted.segments for deleted in task.totals.by_reason.values()) == gone
    assert sum(deleted.bytes for deleted in task.totals.by_reason.values()) > 0


def test_a_log_that_is_old_as_a_whole_ends_empty_and_goes_on(tmp_path: Path) -> None:
    """A topic that nobody writes to any more would keep its last segment for ever, or lose its offsets."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_ms=HOUR_MS), env=environment(clock=clock))
    fill(log, 5)
    clock.now = START_MS + 2 * HOUR_MS
    retention(log, clock).apply(log)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.size_bytes) == (5, 5, 1, 0)
    assert append(log, batch([b"next"])).first_offset == 5
    log.close()
    again = open_log(tmp_path / "log", config(), clean=True)
    assert read_all(again) == [(5, b"next")]


def test_size_keeps_the_newest_bytes(tmp_path: Path) -> None:
    """A disk would fill up in spite of retention.bytes."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_bytes=500), env=environment(clock=clock))
    fill(log, 20)
    retention(log, clock).apply(log)
    oldest = log.local.segments.first.size
    assert 500 <= log.size_bytes < 500 + oldest


def test_an_open_high_watermark_keeps_what_is_not_replicated(tmp_path: Path) -> None:
    """Records that no other broker has yet would be deleted."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_bytes=0), env=environment(clock=clock))
    fill(log, 9)
    log.high_watermark = 4
    retention(log, clock).apply(log)
    assert log.log_start_offset <= 4
    assert {offset for offset, _ in read_all(log)} >= set(range(4, 9))


def test_records_without_a_time_age_with_their_file(tmp_path: Path) -> None:
    """Records of old producers, which carry no timestamp, would never expire."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_ms=HOUR_MS), env=environment(clock=clock))
    fill(log, 6, first_timestamp=-1, step_ms=0)
    clock.now = log._environment.files.modified_ms(log.local.segments.active.path) + HOUR_MS // 2
    task = retention(log, clock)
    assert task.apply(log) == 0
    clock.now += HOUR_MS
    assert task.apply(log) > 0
    assert log.size_bytes == 0


def test_a_record_from_the_future_is_reported_once_an_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An operator would not learn why a topic is never cleaned up."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(retention_ms=1000), env=environment(clock=clock))
    fill(log, 4, first_timestamp=START_MS + 30 * 60_000)
    task = retention(log, clock)
    with caplog.at_level(logging.WARNING, "kbroker.retention"):
        task.apply(log)
        task.apply(log)
    assert len(caplog.records) == 1
    assert "in the future" in caplog.text
    assert str(TP) in caplog.text


def test_settings_that_change_take_effect_at_the_next_run(tmp_path: Path) -> None:
    """Lowering retention.ms in an emergency would do nothing."""
    clock = HandClock(START_MS + 60_000)
    log = open_log(tmp_path / "log", config(retention_ms=HOUR_MS), env=environment(clock=clock))
    fill(log, 8)
    task = retention(log, clock)
    assert task.apply(log) == 0
    log.config = config(retention_ms=1000)
    assert task.apply(log) > 0


def test_a_partition_under_the_cleaner_is_left_alone(tmp_path: Path) -> None:
    """Retention and compaction would change the same segments at once."""
    clock = HandClock(START_MS + 10 * HOUR_MS)
    log = open_log(tmp_path / "log", config(retention_ms=1), env=environment(clock=clock))
    fill(log, 5)
    assert Retention({TP: log}, clock, busy=lambda tp: tp == TP).apply(log) == 0


def test_one_log_that_fails_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bad disk would stop retention everywhere."""
    clock = HandClock(START_MS + 10 * HOUR_MS)
    files = FaultyFiles()
    bad = open_log(tmp_path / "bad", config(retention_ms=1), env=environment(files, clock))
    good = open_log(tmp_path / "good", config(retention_ms=1), env=environment(clock=clock))
    fill(bad, 5)
    fill(good, 5)

    def fail(source: str, target: str) -> None:
        raise OSError(5, f"cannot rename {source} to {target}")

    files.rename = fail  # type: ignore[method-assign]
    logs = {TopicPartition("bad", 0): bad, TopicPartition("good", 0): good}
    with caplog.at_level(logging.ERROR):
        asyncio.run(Retention(logs, clock).run())
    assert good.size_bytes == 0
    assert "Retention of bad-0 failed" in caplog.text


def test_a_crash_at_any_call_leaves_a_log_that_opens(tmp_path: Path) -> None:
    """A kill during retention would make a partition unreadable or bring a hole into it."""
    crash_at = 0
    while True:
        crash_at += 1
        directory = tmp_path / str(crash_at)
        clock = HandClock()
        files = FaultyFiles()
        log = open_log(directory, config(retention_ms=1000, file_delete_delay_ms=0), env=environment(files, clock))
        fill(log, 12)
        log.flush()
        clock.now = START_MS + 9_500
        files.crash_at = files.calls + crash_at
        try:
            retention(log, clock).apply(log)
        except CrashedError:
            again = open_log(directory, config(), recovery_point=12)
            offsets = [offset for offset, _ in read_all(again)]
            assert offsets == list(range(again.log_start_offset, 12))
            again.close(clean=False)
            continue
        break
    assert crash_at > 5


def test_the_log_manager_offers_it_at_kafkas_interval(tmp_path: Path) -> None:
    """Retention would never run in a broker."""
    clock = HandClock(START_MS)
    broker = BrokerConfig.from_mapping({"log.dirs": str(tmp_path), "log.retention.check.interval.ms": 1234})
    manager = LogManager(broker, clock)
    manager.start("cluster")
    log = manager.get_or_create_log(TP, ZERO_UUID, config(retention_ms=1000))
    fill(log, 6)
    clock.now += HOUR_MS
    (task,) = [task for task in manager.periodic_tasks() if task.name == "retention"]
    assert (task.interval_ms, task.initial_delay_ms) == (1234, 30_000)
    asyncio.run(task.run())
    assert log.size_bytes == 0
    manager.shutdown()


def test_many_logs_are_looked_at_in_slices(tmp_path: Path) -> None:
    """A broker with many partitions would stop answering while retention runs."""
    clock = HandClock()
    logs = {}
    for at in range(20):
        tp = TopicPartition("t", at)
        logs[tp] = open_log(tmp_path / str(at), config(retention_ms=1000), env=environment(clock=clock))
        fill(logs[tp], 3)
    turns = 0

    async def main() -> None:
        nonlocal turns
        task = asyncio.ensure_future(Retention(logs, clock, busy=slow).run())
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    def slow(_tp: TopicPartition) -> bool:
        import time

        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        return False

    asyncio.run(main())
    assert turns >= 4


def test_very_many_segments_of_one_log_go_in_portions(tmp_path: Path) -> None:
    """Lowering the retention of one large topic would stop the broker for seconds."""
    clock = HandClock()
    log = open_log(tmp_path / str(TP), config(retention_ms=1000), env=environment(clock=clock))
    fill(log, 7 * MOST_AT_ONCE, step_ms=0)
    segments = log.segment_count
    assert segments > 3 * MOST_AT_ONCE
    clock.now += 10_000
    loop = asyncio.new_event_loop()
    run = Retention({log.topic_partition: log}, clock, slices=Slices(loop, 0)).run()
    most, before = 0, segments
    while True:
        try:
            run.send(None)
        except StopIteration:
            break
        most, before = max(most, before - log.segment_count), log.segment_count
    loop.close()
    assert 0 < most <= MOST_AT_ONCE
    assert (log.segment_count, log.size_bytes) == (1, 0)
    assert log.log_start_offset == log.log_end_offset


def test_many_empty_segments_before_old_ones_hold_nothing_up(tmp_path: Path) -> None:
    """What compaction leaves empty would keep the old records behind it for ever."""
    clock = HandClock()
    log = open_log(tmp_path / str(TP), config(retention_ms=1000), env=environment(clock=clock))
    fill(log, 2 * MOST_AT_ONCE + 30)
    for segment in list(log.local.segments)[: MOST_AT_ONCE + 5]:
        segment.truncate_to(segment.base_offset)
    clock.now += 10_000_000
    asyncio.run(retention(log, clock).run())
    assert (log.segment_count, log.size_bytes) == (1, 0)


LIMITS = [{"retention_ms": HOUR_MS}, {"retention_bytes": 900}, {"retention_ms": HOUR_MS, "retention_bytes": 2_000}]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "settings",
    [{"retention_ms": HOUR_MS}, {"retention_bytes": 900}, {"retention_ms": HOUR_MS, "retention_bytes": 2000}],
)
def test_a_look_at_the_oldest_segments_decides_as_one_at_all(
    tmp_path: Path, most: int, settings: dict[str, int]
) -> None:
    """Retention in portions would keep what is due, or take what is not."""
    clock = HandClock()
    log = open_log(tmp_path / "log", config(**settings), env=environment(clock=clock))
    fill(log, 24)
    for at, segment in enumerate(list(log.local.segments)[:-1]):
        if at in (1, 2, 5):
            os.truncate(segment.path, 0)
    log.close(clean=False)
    log = open_log(tmp_path / "log", config(**settings), env=environment(clock=clock), clean=True)
    for passed_ms in (0, HOUR_MS + 6_500, 2 * HOUR_MS):
        for high_watermark in (log.log_end_offset, 9):
            now_ms = START_MS + passed_ms
            log.high_watermark = high_watermark
            whole, some = look_at(log, now_ms), look_at(log, now_ms, most)
            expected = portion(whole, decide(whole, log.config, now_ms), most)
            assert portion(some, decide(some, log.config, now_ms), most)[:3] == expected[:3]
