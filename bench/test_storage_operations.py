"""What the storage engine's rarer operations cost: `pytest bench/test_storage_operations.py`.

Files are made but not waited for (no fsync), so these are the engine's own costs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import LogConfig
from kbroker.storage.files.checkpoints import OffsetCheckpoint
from kbroker.storage.log.producer_snapshot import decode_snapshot, encode_snapshot
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.retention import decide, look_at
from kbroker.types import TopicPartition
from tests.storage.batches import START_MS, UNSYNCED_FILES, append, batch, environment, open_log

BATCHES = 2_000
SEGMENTS = 500
PARTITIONS = 10_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UnifiedLog]:
    """2,000 batches with rising timestamps."""
    opened = open_log(tmp_path / "log", env=environment(UNSYNCED_FILES, clock=SYSTEM_CLOCK))
    for at in range(BATCHES):
        append(opened, batch([b"x" * 100] * 20, timestamp=START_MS + at))
    yield opened
    opened.close(clean=False)


@pytest.fixture
def rolled(tmp_path: Path) -> Iterator[UnifiedLog]:
    """500 segments of one batch."""
    opened = open_log(tmp_path / "rolled", LogConfig(retention_ms=1), env=environment(UNSYNCED_FILES))
    for _ in range(SEGMENTS):
        append(opened, batch([b"x" * 100]))
        opened.roll()
    yield opened
    opened.close(clean=False)


@pytest.mark.benchmark(group="lookup")
def test_offset_for_timestamp(benchmark: Any, log: UnifiedLog) -> None:
    """What ListOffsets by time and Kafka Streams' resets need: the index, then the records of one batch."""
    times = random.Random(1).choices(range(START_MS, START_MS + BATCHES), k=200)

    def run() -> None:
        for time in times:
            assert log.offset_for_timestamp(time) is not None

    benchmark(run)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / len(times) * 1e6, 2)


@pytest.mark.benchmark(group="lookup")
def test_end_offset_for_epoch(benchmark: Any, log: UnifiedLog) -> None:
    benchmark(log.end_offset_for_epoch, 0)


@pytest.mark.benchmark(group="segments")
def test_roll(benchmark: Any, log: UnifiedLog) -> None:
    """A new segment with its two indexes; the append before it is not counted."""

    def setup() -> None:
        append(log, batch([b"x"], timestamp=START_MS + BATCHES))

    benchmark.pedantic(log.roll, setup=setup, rounds=100)


@pytest.mark.benchmark(group="segments")
def test_flush(benchmark: Any, log: UnifiedLog) -> None:
    """Without the disk's part."""

    def setup() -> None:
        append(log, batch([b"x"], timestamp=START_MS + BATCHES))

    benchmark.pedantic(log.flush, setup=setup, rounds=100)


@pytest.mark.benchmark(group="segments")
def test_truncate(benchmark: Any, log: UnifiedLog) -> None:
    """The last batch of a segment cut off, indexes with it."""

    def setup() -> tuple[tuple[int], dict[str, object]]:
        end = log.log_end_offset
        append(log, batch([b"x"], timestamp=START_MS + BATCHES))
        return (end,), {}

    benchmark.pedantic(log.truncate_to, setup=setup, rounds=100)


@pytest.mark.benchmark(group="retention: 500 segments")
def test_decide_retention(benchmark: Any, rolled: UnifiedLog) -> None:
    """Looking at a log and judging it, as each check does for each log."""
    now_ms = START_MS + 10_000_000

    def run() -> None:
        decide(look_at(rolled, now_ms), rolled.config, now_ms)

    benchmark(run)


@pytest.mark.benchmark(group="checkpoints: 10,000 partitions")
def test_write_checkpoint(benchmark: Any, tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(UNSYNCED_FILES, str(tmp_path / "recovery-point-offset-checkpoint"))
    rounds = iter(range(1 << 30))
    partitions = [TopicPartition(f"topic-{at % 100}", at) for at in range(PARTITIONS)]

    def setup() -> tuple[tuple[dict[TopicPartition, int]], dict[str, object]]:
        number = next(rounds)
        return (dict.fromkeys(partitions, number),), {}

    benchmark.pedantic(checkpoint.write, setup=setup, rounds=10)


@pytest.mark.benchmark(group="checkpoints: 10,000 partitions")
def test_read_checkpoint(benchmark: Any, tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(UNSYNCED_FILES, str(tmp_path / "recovery-point-offset-checkpoint"))
    checkpoint.write({TopicPartition(f"topic-{at % 100}", at): at for at in range(PARTITIONS)})
    assert len(benchmark(checkpoint.read)) == PARTITIONS


def _producers() -> list[ProducerEntry]:
    entries = [ProducerEntry(at) for at in range(1_000)]
    for at, entry in enumerate(entries):
        entry.add(0, at, at, 0, START_MS)
    return entries


@pytest.mark.benchmark(group="producer snapshot: 1,000 producers")
def test_encode_snapshot(benchmark: Any) -> None:
    benchmark(encode_snapshot, _producers())


@pytest.mark.benchmark(group="producer snapshot: 1,000 producers")
def test_decode_snapshot(benchmark: Any) -> None:
    data = bytes(encode_snapshot(_producers()))
    assert len(benchmark(decode_snapshot, data, "snapshot")) == 1_000
