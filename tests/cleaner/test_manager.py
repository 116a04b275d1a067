"""The pool of cleaners on real directories: which logs, in which order, what is remembered, what happens on failure."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.storage.cleaner.cleaner_settings import CleanerSettings, check_reconfiguration
from tests.cleaner.brokerless import OTHER, Brokerless, FailingReads, StoppingFiles, fill, interrupted
from tests.cleaner.logs import COMPACT, config, put, records_of, table_of
from tests.storage.batches import START_MS, TP


def checkpointed(directory: Path) -> str:
    return (directory / "cleaner-offset-checkpoint").read_text()


def test_a_dirty_log_is_compacted_and_remembered(tmp_path: Path) -> None:
    """Compacted topics, the consumers' offsets among them, would grow without end."""
    broker = Brokerless(tmp_path)
    log = broker.log()
    fill(log, 40)
    before = table_of(records_of(log))
    broker.turn()
    assert len(records_of(log)) < 40
    assert table_of(records_of(log)) == before
    end = log.local.segments.active.base_offset
    assert checkpointed(tmp_path) == f"0\n1\n{TP.topic} {TP.partition} {end}\n"
    assert broker.cleaner.last_cleans[TP].summary.end_offset == end
    assert broker.cleaner.totals.cleans == 1
    broker.turn()
    assert broker.cleaner.totals.cleans == 1
    broker.manager.shutdown()
    again = Brokerless(tmp_path)
    assert again.cleaner.first_dirty_offset(again.log()) == end
    again.manager.shutdown()


def test_logs_that_are_not_dirty_enough_wait(tmp_path: Path) -> None:
    """A large log would be written anew for every few records."""
    broker = Brokerless(tmp_path)
    log = broker.log(min_cleanable_dirty_ratio=0.9)
    fill(log, 30, keys=9)
    broker.turn()
    assert broker.cleaner.totals.cleans == 1
    clean_bytes = log.size_bytes
    put(log, *((b"new%d" % at, b"v") for at in range(9)))
    log.roll()
    assert log.size_bytes < 9 * clean_bytes
    broker.turn()
    assert broker.cleaner.totals.cleans == 1
    log.config = config(min_cleanable_dirty_ratio=0.1)
    broker.turn()
    assert broker.cleaner.totals.cleans == 2
    broker.manager.shutdown()


def test_only_compacted_logs_are_touched(tmp_path: Path) -> None:
    """Records of a topic with cleanup.policy=delete would vanish before their time."""
    broker = Brokerless(tmp_path)
    log = broker.log(cleanup_policy=frozenset({"delete"}))
    fill(log, 20)
    before = records_of(log)
    broker.turn()
    assert records_of(log) == before
    broker.manager.shutdown()


def test_max_compaction_lag_compacts_what_is_hardly_dirty_and_rolls_the_active_segment(tmp_path: Path) -> None:
    """A deleted person's data would stay beyond the time that the law allows."""
    broker = Brokerless(tmp_path)
    log = broker.log(internal_segment_bytes=1 << 20, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0)
    fill(log, 10)
    broker.turn()
    assert (log.segment_count, len(records_of(log))) == (1, 50)
    broker.clock.now += 60_020
    broker.turn()
    assert (log.segment_count, len(records_of(log))) == (2, 5)
    broker.manager.shutdown()


def test_min_compaction_lag_keeps_young_records(tmp_path: Path) -> None:
    """A consumer that is promised every record for a while would miss some."""
    broker = Brokerless(tmp_path)
    log = broker.log(min_compaction_lag_ms=60_000)
    fill(log, 10, timestamp=START_MS - 70_000)
    log.roll()
    fill(log, 10, timestamp=START_MS - 50_000)
    log.roll()
    young = [record for record in records_of(log) if record.timestamp >= START_MS - 50_000]
    broker.turn()
    after = records_of(log)
    assert len(after) < 100
    assert [record for record in after if record.timestamp >= START_MS - 50_000] == young
    broker.manager.shutdown()


def test_the_filthiest_log_comes_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log that would give most space back would wait for all the others."""
    broker = Brokerless(tmp_path)
    cleaner = broker.cleaner
    mild, filthy = broker.log(OTHER, min_cleanable_dirty_ratio=0.01), broker.log(TP)
    fill(mild, 30, keys=8)
    broker.turn()
    fill(mild, 3, keys=8)
    mild.roll()
    fill(filthy, 30)
    assert cleaner.assess(mild).dirty_ratio < cleaner.assess(filthy).dirty_ratio
    with caplog.at_level(logging.INFO, "kbroker.cleaner"):
        broker.turn()
    compacted = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert compacted == [TP, OTHER]
    broker.manager.shutdown()


@pytest.mark.parametrize(
    ("checkpoint", "text"), [(10**9, "past the log end"), (1, "below the log start"), ("nonsense", "")]
)
def test_a_checkpoint_that_cannot_be_true_is_put_right(
    tmp_path: Path, checkpoint: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A log would never be compacted again after a checkpoint from before a truncation."""
    first = Brokerless(tmp_path)
    log = first.log()
    fill(log, 20)
    log.delete_records_before(12)
    first.manager.shutdown()
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} {checkpoint}\n")
    broker = Brokerless(tmp_path)
    log = broker.log()
    log.high_watermark = log.log_end_offset
    with caplog.at_level(logging.WARNING):
        broker.turn()
    assert broker.cleaner.totals.cleans == 1
    assert text in caplog.text
    assert f" {log.local.segments.active.base_offset}\n" in checkpointed(tmp_path)
    broker.manager.shutdown()


def test_a_log_that_fails_is_visible_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bad log would stay uncompacted until a restart, and nobody would know."""
    files = FailingReads()
    broker = Brokerless(tmp_path, files)
    bad, good = broker.log(TP), broker.log(OTHER)
    fill(bad, 20)
    fill(good, 20)
    with caplog.at_level(logging.ERROR):
        broker.turn()
    assert len(records_of(good)) < 20
    assert (len(broker.cleaner.uncleanable), broker.cleaner.busy_count, broker.cleaner.totals.cleans) == (1, 0, 1)
    assert broker.cleaner.found[TP].cleanable_bytes > 0
    assert broker.cleaner.found[TP].dirty_ratio == 1.0
    failure = broker.cleaner.uncleanable[TP]
    assert (failure.attempts, failure.since_ms) == (1, START_MS)
    assert "the disk fails" in failure.reason
    assert "next attempt in 15 s" in caplog.text
    broker.turn()
    assert broker.cleaner.uncleanable[TP].attempts == 1, "it must wait for its time"
    broker.clock.now += 16_000
    broker.turn()
    assert broker.cleaner.uncleanable[TP].attempts == 2
    files.failing = False
    broker.clock.now += 31_000
    broker.turn()
    assert not broker.cleaner.uncleanable
    assert len(records_of(bad)) < 20
    broker.manager.shutdown()


def test_a_truncation_in_the_middle_of_a_clean_wins(tmp_path: Path) -> None:
    """Records that were truncated would come back when the clean puts its segments in place."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    log = broker.log()
    fill(log, 20)

    def truncate() -> None:
        broker.cleaner.abort_and_pause(TP)
        log.truncate_to(10)
        broker.cleaner.truncated(log)

    interrupted(broker, files, truncate)
    assert [record.offset for record in records_of(log)] == list(range(10))
    assert not list(Path(log.directory).glob("*.cleaned"))
    assert broker.cleaner.totals.aborts == 1
    assert not broker.cleaner.uncleanable
    fill(log, 20)
    broker.turn()
    assert broker.cleaner.totals.cleans == 0, "it is paused"
    broker.cleaner.resume(TP)
    broker.turn()
    assert broker.cleaner.totals.cleans == 1
    broker.manager.shutdown()


def test_segments_that_changed_without_a_word_are_not_replaced(tmp_path: Path) -> None:
    """DeleteRecords during a clean would be undone."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    log = broker.log()
    fill(log, 20)
    interrupted(broker, files, lambda: log.delete_records_before(30))
    assert min(record.offset for record in records_of(log)) >= log.local.segments.first.base_offset > 0
    assert broker.cleaner.totals.aborts == 1
    broker.turn()
    assert broker.cleaner.totals.cleans == 1
    broker.manager.shutdown()


def test_a_topic_deleted_and_made_again_in_the_middle_of_a_clean_stays_empty(tmp_path: Path) -> None:
    """Records of a deleted topic would appear in its successor."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    fill(broker.log(), 20)

    def replace() -> None:
        broker.manager.delete_log(TP)
        broker.log()

    interrupted(broker, files, replace)
    log = broker.log()
    assert records_of(log) == []
    assert sorted(path.suffix for path in Path(log.directory).iterdir() if path.stem.isdigit()) == [
        ".index",
        ".log",
        ".timeindex",
    ]
    fill(log, 20)
    broker.turn()
    assert len(records_of(log)) < 20
    broker.manager.shutdown()


def test_a_stop_ends_a_clean(tmp_path: Path) -> None:
    """A stop of the broker would wait for a long clean, or leave half of it."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    log = broker.log()
    fill(log, 20)
    before = records_of(log)

    async def main() -> None:
        files.loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(broker.cleaner.run())
        files.call = task.cancel
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    broker.manager.shutdown()
    assert not list(Path(log.directory).glob("*.cleaned"))
    again = Brokerless(tmp_path)
    assert records_of(again.log()) == before
    again.manager.shutdown()


def test_a_map_that_is_too_small_takes_several_rounds(tmp_path: Path) -> None:
    """A log with more keys than the dedupe buffer holds would never be compacted."""
    broker = Brokerless(tmp_path)
    broker.cleaner.settings = broker.cleaner.settings._replace(dedupe_bytes=24 * 40)
    log = broker.log()
    for at in range(300):
        put(log, (b"key%d" % (at * 7 % 100), b"%d" % at))
    expected = table_of(records_of(log))
    broker.turn()
    assert broker.cleaner.totals.cleans >= 3
    assert table_of(records_of(log)) == expected
    assert broker.cleaner.first_dirty_offset(log) == log.local.segments.active.base_offset
    broker.manager.shutdown()


def test_the_pool_grows_and_shrinks_by_at_most_twice() -> None:
    """A mistyped number of threads would take the machine's memory."""
    now = CleanerSettings.of(BrokerConfig.from_mapping({"log.cleaner.threads": "4"}))
    for threads in (2, 4, 8):
        check_reconfiguration(now, now._replace(threads=threads))
    for threads in (0, 1, 9):
        with pytest.raises(ValueError, match="threads"):
            check_reconfiguration(now, now._replace(threads=threads))


def test_it_is_a_task_of_the_log_manager(tmp_path: Path) -> None:
    """Nothing would be compacted in a broker."""
    broker = Brokerless(tmp_path, settings={"log.cleaner.backoff.ms": "1234"})
    (task,) = [task for task in broker.manager.periodic_tasks() if task.name == "compaction"]
    assert (task.interval_ms, task.run) == (1234, broker.cleaner.run)
    broker.manager.shutdown()


def test_retention_waits_for_the_cleaner(tmp_path: Path) -> None:
    """Retention and compaction would change the same segments at once."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    log = broker.log(cleanup_policy=COMPACT | {"delete"}, retention_ms=-1, retention_bytes=0)
    fill(log, 20)
    deleted: list[int] = []
    interrupted(broker, files, lambda: deleted.append(broker.manager.retention.apply(log)))
    assert deleted == [0]
    assert broker.cleaner.totals.cleans == 1
    assert broker.manager.retention.apply(log) > 0
    broker.manager.shutdown()


def test_a_log_of_many_small_segments_is_compacted_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would stand still while thousands of files are renamed."""
    monkeypatch.setattr("kbroker.storage.cleaner.cleaner_snapshot.MOST_SEGMENTS", 7)
    broker = Brokerless(tmp_path)
    log = broker.log(min_cleanable_dirty_ratio=0.01)
    fill(log, 60)
    assert log.segment_count >= 20
    expected = table_of(records_of(log))
    broker.turn()
    assert broker.cleaner.totals.cleans >= 3
    assert broker.cleaner.first_dirty_offset(log) == log.local.segments.active.base_offset
    assert table_of(records_of(log)) == expected
    broker.manager.shutdown()
