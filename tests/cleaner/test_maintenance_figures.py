"""What metrics tell of compaction and retention, on real directories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.metrics.families import Values
from kbroker.metrics.maintenance import FAMILIES
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.reports.maintenance_figures import maintenance_figures
from kbroker.types import TopicPartition
from tests.cleaner.brokerless import OTHER, Brokerless, FailingReads, fill
from tests.cleaner.logs import COMPACT
from tests.storage.batches import START_MS, TP

DELETE = frozenset({"delete"})
LABEL = (TP.topic, str(TP.partition))


def figures(broker: Brokerless, most: int = 100) -> Values:
    return asyncio.run(maintenance_figures(broker.manager, broker.clock, most, Slices().pace()))


def labelled(values: Values, name: str) -> dict[tuple[str, ...], float]:
    found = values[name]
    assert isinstance(found, Mapping)
    return dict(found)


def test_every_family_has_values(tmp_path: Path) -> None:
    """A dashboard would show nothing where the page of metrics promises a figure."""
    broker = Brokerless(tmp_path)
    assert sorted(figures(broker)) == sorted(family.name for family in FAMILIES)
    broker.manager.shutdown()


def test_a_log_that_fails_to_be_compacted_is_named(tmp_path: Path) -> None:
    """Nobody would notice that a compacted topic grows without end, until the disk is full."""
    files = FailingReads()
    broker = Brokerless(tmp_path, files)
    bad, good = broker.log(TP), broker.log(OTHER)
    fill(bad, 20)
    fill(good, 20)
    broker.turn()
    broker.clock.now += 6_000
    seen = figures(broker)
    # By directory, as Kafka's uncleanable-partitions-count and uncleanable-bytes.
    assert labelled(seen, "kbroker_cleaner_uncleanable_partitions") == {(str(tmp_path),): 1}
    dirty = broker.cleaner.found[TP].cleanable_bytes
    assert labelled(seen, "kbroker_cleaner_uncleanable_bytes") == {(str(tmp_path),): dirty}
    assert dirty > 0
    assert seen["kbroker_cleaner_dirty_bytes"] == dirty
    assert seen["kbroker_cleaner_max_dirty_ratio"] == 1.0
    assert seen["kbroker_cleaner_oldest_dirty_seconds"] == pytest.approx(6.0, abs=0.1)
    assert labelled(seen, "kbroker_partition_clean_failures") == {LABEL: 1}
    assert labelled(seen, "kbroker_partition_clean_failing_seconds") == {LABEL: 6.0}
    assert labelled(seen, "kbroker_partition_clean_retry_seconds") == {LABEL: pytest.approx(9.0)}
    assert labelled(seen, "kbroker_cleaner_runs") == {("done",): 1, ("failed",): 1, ("aborted",): 0}
    assert 0 < seen["kbroker_cleaner_recopy_ratio"] < 1  # type: ignore[operator]
    assert seen["kbroker_cleaner_last_clean_timestamp_seconds"] == START_MS / 1000
    few = figures(broker, most=1)
    assert not labelled(few, "kbroker_partition_dirty_ratio")
    assert labelled(few, "kbroker_partition_clean_failures") == {LABEL: 1}, "the one that fails is always told"
    files.failing = False
    broker.clock.now += 60_000
    broker.turn()
    healed = figures(broker)
    assert labelled(healed, "kbroker_cleaner_uncleanable_partitions") == {(str(tmp_path),): 0}
    assert healed["kbroker_cleaner_oldest_dirty_seconds"] == 0
    assert not labelled(healed, "kbroker_partition_clean_failures")
    broker.manager.shutdown()


def retain(manager: LogManager) -> None:
    asyncio.run(manager.retention.run())


def test_what_retention_takes_is_counted_by_its_reason(tmp_path: Path) -> None:
    """An operator could not tell which setting takes the records that somebody misses."""
    broker = Brokerless(tmp_path)
    old = broker.log(TP, cleanup_policy=DELETE, retention_ms=1_000)
    large = broker.log(OTHER, cleanup_policy=DELETE, retention_ms=-1, retention_bytes=0)
    fill(old, 5)
    fill(large, 5)
    sizes = {log.topic_partition: log.size_bytes for log in (old, large)}
    counts = {log.topic_partition: log.segment_count for log in (old, large)}
    broker.clock.now += 5_000
    retain(broker.manager)
    seen = figures(broker)
    segments = labelled(seen, "kbroker_retention_deleted_segments")
    assert segments == {("time",): counts[TP], ("size",): counts[OTHER], ("log_start",): 0}
    assert labelled(seen, "kbroker_retention_deleted_bytes") == {
        ("time",): sizes[TP],
        ("size",): sizes[OTHER],
        ("log_start",): 0,
    }
    broker.manager.shutdown()


def test_what_should_be_gone_and_is_not_gets_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records would outlive the time that the law allows, and no alert would tell."""
    broker = Brokerless(tmp_path)
    log = broker.log(TP, cleanup_policy=DELETE, retention_ms=60_000)
    fill(log, 5, timestamp=START_MS - 1_000)
    retain(broker.manager)
    assert figures(broker)["kbroker_retention_oldest_deletable_seconds"] == 0
    monkeypatch.setattr(broker.manager.retention, "_busy", lambda tp: True)
    broker.clock.now += 100_000
    retain(broker.manager)
    assert figures(broker)["kbroker_retention_oldest_deletable_seconds"] == pytest.approx(101.0, abs=0.1)
    monkeypatch.setattr(broker.manager.retention, "_busy", lambda tp: False)
    retain(broker.manager)
    assert figures(broker)["kbroker_retention_oldest_deletable_seconds"] == 0
    broker.manager.shutdown()


def test_records_from_the_future_are_counted_while_they_keep_a_log(tmp_path: Path) -> None:
    """A producer with a wrong clock would fill the disk, and the operator would look everywhere else."""
    broker = Brokerless(tmp_path)
    log = broker.log(TP, cleanup_policy=DELETE, retention_ms=1_000, message_timestamp_after_max_ms=1 << 62)
    fill(log, 5, timestamp=START_MS + 10_000_000)
    fill(broker.log(TopicPartition("now", 0), cleanup_policy=COMPACT), 1)
    retain(broker.manager)
    assert figures(broker)["kbroker_retention_future_partitions"] == 1
    broker.clock.now += 20_000_000
    retain(broker.manager)
    assert figures(broker)["kbroker_retention_future_partitions"] == 0
    broker.manager.shutdown()


def test_fsyncs_are_timed(tmp_path: Path) -> None:
    """A slow disk would be noticed by its users only."""
    broker = Brokerless(tmp_path)
    log = broker.log(TP)
    fill(log, 5)
    log.flush()
    seen = figures(broker)
    assert seen["kbroker_log_flushes"] >= 1  # type: ignore[operator]
    assert 0 < seen["kbroker_log_flush_max_seconds"] <= seen["kbroker_log_flush_seconds"]  # type: ignore[operator]
    broker.manager.shutdown()
