"""The workers of the pool: none is idle while a log waits, and no log waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.config import BrokerConfig
from kbroker.storage.cleaner.cleaner_queue import PATIENCE_SECONDS, DueLogs
from kbroker.storage.cleaner.cleaner_settings import MOST_MAP_BYTES, CleanerSettings
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.reports.maintenance_figures import maintenance_figures
from kbroker.types import TopicPartition
from tests.cleaner.brokerless import OTHER, Brokerless, StoppingFiles, fill, interrupted
from tests.cleaner.logs import records_of
from tests.storage.batches import TP, UnsyncedFiles

THIRD = TopicPartition("accounts", 0)
QUICK = {"log.cleaner.backoff.ms": "0", "log.cleaner.dedupe.buffer.size": str(4 << 20)}


class HeldFiles(UnsyncedFiles):
    """The first clean stops at its first fsync until `go` is set."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.go = threading.Event()

    def fsync(self, fd: int) -> None:
        if threading.current_thread().name.startswith("log-cleaner") and not self.held.is_set():
            self.held.set()
            assert self.go.wait(60)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def beside_a_long_clean(broker: Brokerless, files: HeldFiles, then: Callable[[], bool]) -> None:
    """Runs a turn whose first clean does not end before `then`, asked again and again, is true."""

    async def main() -> None:
        turn = asyncio.ensure_future(broker.cleaner.run())
        try:
            await until(files.held.is_set)
            await until(then)
        finally:
            files.go.set()
            await turn

    asyncio.run(main())


def test_a_log_that_becomes_due_beside_a_long_clean_is_taken_by_the_other_thread(tmp_path: Path) -> None:
    """The consumers' offsets would grow for as long as the clean of a large topic takes."""
    files = HeldFiles()
    broker = Brokerless(tmp_path, files, {**QUICK, "log.cleaner.threads": "2"})
    long, offsets = broker.log(), broker.log(OTHER)
    fill(long, 20)
    rounds = 0

    def dirty_again_and_cleaned() -> bool:
        """Twice, as the thread must go on looking."""
        nonlocal rounds
        if broker.cleaner.totals.cleans == rounds:
            if rounds == 2:
                return True
            fill(offsets, 20)
            rounds += 1
        return False

    beside_a_long_clean(broker, files, dirty_again_and_cleaned)
    assert set(broker.cleaner.last_cleans) == {TP, OTHER}
    broker.manager.shutdown()


def test_threads_that_are_added_work_beside_a_long_clean(tmp_path: Path) -> None:
    """More threads, the remedy for logs that wait, would come when it is over."""
    files = HeldFiles()
    broker = Brokerless(tmp_path, files, QUICK)
    fill(broker.log(), 30)
    fill(broker.log(OTHER), 20, keys=2)
    changed = {"log.dirs": str(tmp_path), **QUICK, "log.cleaner.threads": "2"}

    def others_are_cleaned() -> bool:
        assert broker.cleaner.busy_count or files.go.is_set()
        broker.cleaner.reconfigure(BrokerConfig.from_mapping(changed))
        return broker.cleaner.totals.cleans == 1

    beside_a_long_clean(broker, files, others_are_cleaned)
    assert broker.cleaner.totals.cleans == 2
    broker.manager.shutdown()


def test_a_log_that_is_dirty_again_after_each_clean_does_not_starve_the_others(tmp_path: Path) -> None:
    """With one thread, a topic that is written fast would keep the consumers' offsets from ever being compacted."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files, QUICK)
    cleaner = broker.cleaner
    hot, offsets = broker.log(), broker.log(OTHER, min_cleanable_dirty_ratio=0.01)
    fill(offsets, 40, keys=8)
    broker.turn()
    fill(offsets, 5, keys=8)
    offsets.roll()
    cleans = cleaner.totals.cleans
    fill(hot, 20)
    assert cleaner.assess(offsets).dirty_ratio < cleaner.assess(hot).dirty_ratio
    last = cleaner.last_cleans[OTHER]

    def refill() -> None:
        if cleaner.last_cleans[OTHER] is last and cleaner.totals.cleans <= cleans + 20:
            fill(hot, 40)
            broker.clock.now += 60_000
            files.call = refill

    interrupted(broker, files, refill)
    assert cleaner.last_cleans[OTHER] is not last
    assert cleaner.totals.cleans <= cleans + PATIENCE_SECONDS / 60 + 3
    broker.manager.shutdown()


def test_a_log_that_has_waited_long_comes_before_a_filthier_one() -> None:
    """A little dirt would wait for ever where more always comes."""
    due = DueLogs()
    due.offer(TP, 0.6, 100.0)
    due.offer(OTHER, 0.9, 100.0)
    due.offer(TP, 0.7, 150.0)
    assert [due.take(), due.take(), due.take()] == [OTHER, TP, None]
    due.offer(TP, 0.6, 100.0)
    due.restart()
    due.offer(OTHER, 1.0, 100.0 + PATIENCE_SECONDS)
    due.offer(TP, 0.6, 100.0 + PATIENCE_SECONDS)
    due.offer(THIRD, 1.0, 0.0)
    due.withdraw(THIRD)
    assert len(due) == 2
    assert [due.take(), due.take(), due.take()] == [TP, OTHER, None]


def test_a_log_that_cannot_be_judged_does_not_keep_the_others_from_being_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with one log, compaction would end for all of them."""
    broker = Brokerless(tmp_path)
    bad, good = broker.log(TP), broker.log(OTHER)
    fill(bad, 20)
    fill(good, 20)
    assess = broker.cleaner.assess

    def failing(log: UnifiedLog) -> object:
        if log is bad:
            raise IndexError("not what was expected")
        return assess(log)

    monkeypatch.setattr(broker.cleaner, "assess", failing)
    broker.turn()
    assert len(records_of(good)) < 20
    assert list(broker.cleaner.uncleanable) == [TP]
    broker.manager.shutdown()


def test_a_worker_that_an_error_ends_is_counted_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction would stop, and no figure would show it (Kafka's DeadThreadCount)."""
    broker = Brokerless(tmp_path, settings=QUICK)
    log = broker.log()
    fill(log, 20)

    async def dead_threads() -> object:
        return (await maintenance_figures(broker.manager, broker.clock, 10, Slices().pace()))[
            "kbroker_cleaner_dead_threads"
        ]

    async def fail() -> None:
        raise RuntimeError("not what was expected")

    with monkeypatch.context() as patched:
        patched.setattr(broker.cleaner, "_write_checkpoints", fail)
        with pytest.raises(RuntimeError):
            broker.turn()
    assert asyncio.run(dead_threads()) == 1
    assert broker.cleaner.totals.cleans == 1
    fill(log, 20)
    broker.turn()
    assert asyncio.run(dead_threads()) == 0
    assert broker.cleaner.totals.cleans == 2
    broker.manager.shutdown()


def test_a_stop_between_the_choice_of_a_log_and_its_clean_leaves_the_log_free(tmp_path: Path) -> None:
    """Retention would leave it alone for good."""
    broker = Brokerless(tmp_path)
    fill(broker.log(), 20)

    async def main() -> None:
        turn = asyncio.ensure_future(broker.cleaner.run())
        while not broker.cleaner.busy_count:
            await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(main())
    assert not broker.cleaner.busy_count
    assert not broker.cleaner.is_busy(TP)
    broker.manager.shutdown()


def test_a_topic_deleted_between_the_choice_of_a_log_and_its_clean_is_left_out(tmp_path: Path) -> None:
    """The worker would end in an error, and the next topic of that name would never be compacted."""
    files = StoppingFiles()
    broker = Brokerless(tmp_path, files)
    fill(broker.log(), 20)

    async def main() -> None:
        turn = asyncio.ensure_future(broker.cleaner.run())
        while not broker.cleaner.busy_count:
            await asyncio.sleep(0)
        broker.manager.delete_log(TP)
        await turn

    asyncio.run(main())
    assert broker.cleaner.dead_count == 0
    log = broker.log()
    fill(log, 20)
    interrupted(broker, files, lambda: None)
    assert broker.cleaner.totals.cleans == 1
    broker.manager.shutdown()


def test_a_thread_takes_at_most_2_gib_of_the_dedupe_buffer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An operator would believe that compaction uses the memory that he gave it; Kafka says so, too."""
    values = {"log.dirs": str(tmp_path), "log.cleaner.dedupe.buffer.size": str(5 << 30)}

    def of(threads: int) -> BrokerConfig:
        return BrokerConfig.from_mapping({**values, "log.cleaner.threads": str(threads)})

    assert CleanerSettings.of(of(2)).map_bytes == MOST_MAP_BYTES == 2**31 - 1
    assert CleanerSettings.of(of(4)).map_bytes == 5 << 28
    broker = Brokerless(tmp_path, settings=values)
    text = "Cannot use more than 2G of cleaner buffer space per cleaner thread"
    assert text in caplog.text
    caplog.clear()
    broker.cleaner.reconfigure(of(4))
    assert text not in caplog.text
    broker.cleaner.reconfigure(of(2))
    assert text in caplog.text
    broker.manager.shutdown()
