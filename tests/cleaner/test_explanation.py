"""The words that tell an operator why a log is not compacted or shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.storage.cleaner.cleaner_manager import CleaningFailure
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.reports.log_explanation import duration, explain_compaction, explain_retention
from tests.cleaner.brokerless import Brokerless, fill
from tests.cleaner.logs import put
from tests.storage.batches import START_MS, TP

DELETE = frozenset({"delete"})


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (90_000, "1.5 min"), (5_400_000, "1.5 h"), (172_800_000, "2 d")],
)
def test_durations_read_well(milliseconds: int, text: str) -> None:
    """An operator would have to count digits."""
    assert duration(milliseconds) == text


def compaction(broker: Brokerless, log: UnifiedLog) -> str:
    now = broker.clock.now_ms()
    return " ".join(explain_compaction(log, broker.cleaner, now, broker.clock.monotonic()))


def test_compaction_is_explained_at_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users would not learn that the active segment is what keeps their topic from being compacted."""
    broker = Brokerless(tmp_path)
    log = broker.log(internal_segment_bytes=1 << 20)
    fill(log, 10)
    text = compaction(broker, log)
    assert "Nothing to compact" in text
    assert "active segment" in text and "1048576 bytes" in text
    log.roll()
    assert "Due, as enough of it is dirty: compacted within 15 s" in compaction(broker, log)
    with monkeypatch.context() as busy:
        busy.setattr(type(broker.cleaner), "busy_count", 1)
        assert "compacted when one of 1 threads (log.cleaner.threads) is free" in compaction(broker, log)
    broker.turn()
    put(log, (b"k1", b"x"))
    log.roll()
    text = compaction(broker, log)
    assert "Not due: compaction begins when more than 50% is dirty" in text
    assert "max.compaction.lag.ms is not set" in text
    assert "5 of 50 records stayed" in text
    broker.cleaner.abort_and_pause(TP)
    assert "Now: its compaction is paused" in compaction(broker, log)
    broker.cleaner.resume(TP)
    broker.cleaner.uncleanable[TP] = CleaningFailure(3, "OSError: the disk", START_MS - 60_000, 1e18)
    assert "fails since 1 min (3 attempts): OSError: the disk" in compaction(broker, log)
    broker.cleaner.uncleanable.clear()
    log.config = log.config.__class__(cleanup_policy=DELETE)
    assert compaction(broker, log) == "Not compacted: cleanup.policy is delete."
    broker.manager.shutdown()


def test_lags_are_explained(tmp_path: Path) -> None:
    """Users would not learn which setting holds compaction back."""
    broker = Brokerless(tmp_path)
    log = broker.log(min_compaction_lag_ms=60_000)
    fill(log, 10)
    assert "min.compaction.lag.ms has not passed" in compaction(broker, log)
    log.config = log.config.__class__(
        cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0
    )
    assert "max.compaction.lag.ms makes it due in 1 min" in compaction(broker, log)
    assert "or without one in 1 min (max.compaction.lag.ms)" in compaction(broker, log)
    broker.clock.now += 70_000
    assert "Due, as max.compaction.lag.ms has passed" in compaction(broker, log)
    broker.manager.shutdown()


def test_retention_is_explained(tmp_path: Path) -> None:
    """Users would not learn why old records are still there."""
    broker = Brokerless(tmp_path)
    log = broker.log(cleanup_policy=DELETE, retention_ms=3_600_000, retention_bytes=1 << 20)
    fill(log, 10)
    broker.clock.now += 4
    text = " ".join(explain_retention(log, broker.clock.now))
    assert "goes by age in 1 h at the earliest" in text
    assert "goes by size after" in text
    assert "because retention.ms has passed" in explain_retention(log, broker.clock.now + 3_700_000)[0]
    assert "in the future" in explain_retention(log, broker.clock.now - 60_000)[0]
    log.high_watermark = 1
    assert "high watermark is 1" in explain_retention(log, broker.clock.now)[-1]
    log.config = log.config.__class__(cleanup_policy=DELETE, retention_ms=-1)
    assert explain_retention(log, broker.clock.now)[:2] == [
        "retention.ms is -1: age deletes nothing.",
        "retention.bytes is -1: size deletes nothing.",
    ]
    log.config = log.config.__class__(cleanup_policy=frozenset({"compact"}))
    assert "no delete" in explain_retention(log, broker.clock.now)[0]
    broker.manager.shutdown()
