"""What recovery builds is what appending built: every file of a log, byte for byte."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import START_MS, append, batch, marker, open_log, read_all

SEED = 7
PRODUCERS = 9
IDLE, TRANSACTIONAL = 100, 50


def fill(log: UnifiedLog, count: int, rng: random.Random) -> None:
    """Batches of many producers, with and without transactions, of rising and falling time and growing leader epoch."""
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    open_transactions: set[int] = set()
    epoch = 0
    append(log, batch(producer_id=IDLE, epoch=0, sequence=0))
    for number in range(count):
        producer = rng.randrange(-2, PRODUCERS)
        timestamp = START_MS + number + rng.randrange(-50, 50)
        epoch += rng.random() < 0.002
        if producer < 0:
            append(log, batch([b"."] * rng.randrange(1, 4), timestamp=timestamp), leader_epoch=epoch)
            continue
        records = [b"."] * rng.randrange(1, 4)
        is_transactional = producer >= PRODUCERS - 2
        identity = producer + TRANSACTIONAL * is_transactional
        append(
            log,
            batch(
                records,
                timestamp=timestamp,
                producer_id=identity,
                epoch=0,
                sequence=sequences[producer],
                transactional=is_transactional,
            ),
            leader_epoch=epoch,
        )
        sequences[producer] += len(records)
        if is_transactional:
            open_transactions.add(identity)
        if open_transactions and rng.random() < 0.05:
            ended = open_transactions.pop()
            append(
                log,
                marker(ended, 0, abort=rng.random() < 0.5),
                leader_epoch=epoch,
                origin=AppendOrigin.COORDINATOR,
            )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_recovery_builds_the_same_files(tmp_path: Path) -> None:
    """After a crash lookups, duplicates or aborted transactions would differ from those before it."""
    config = LogConfig(internal_segment_bytes=150_000, index_interval_bytes=150)
    log = open_log(tmp_path, config)
    fill(log, 4_500, random.Random(SEED))
    assert log.segment_count > 2
    assert max(segment.offset_index.table.entries for segment in log.local.segments) > 600
    epochs = log.leader_epoch_cache.entries
    assert len(epochs) > 5
    log.close()
    before = contents(tmp_path)
    end = log.log_end_offset
    for path in tmp_path.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot") or path.name == "leader-epoch-checkpoint":
            path.unlink()
    log = open_log(tmp_path, config)
    assert log.log_end_offset == end
    assert log.leader_epoch_cache.entries == epochs
    log.close()
    after = contents(tmp_path)
    assert sorted(after) == sorted(before)
    different = [name for name, content in before.items() if after[name] != content and not name.endswith(".snapshot")]
    assert different == []
    # A snapshot lists the producers in the order in which they were first seen.
    for name, content in before.items():
        if name.endswith(".snapshot"):
            assert _entries(after[name]) == _entries(content)


def _entries(snapshot: bytes) -> list[bytes]:
    return sorted(snapshot[at : at + 46] for at in range(10, len(snapshot), 46))


@pytest.mark.parametrize(("policy", "warns"), [("compact", False), ("delete", True)])
def test_gaps_are_told_where_nothing_explains_them(
    policy: str, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every start after a crash would warn of loss in compacted topics, and real loss would go unread among them."""
    config = LogConfig(internal_segment_bytes=330, cleanup_policy=frozenset({policy}))
    log = open_log(tmp_path, config)
    for number in range(12):
        append(log, batch([b"%d" % number]))
    log.close(clean=False)
    removed = sorted(tmp_path.glob("*.log"))[1]
    removed.unlink()
    with caplog.at_level(logging.INFO, "kbroker.storage"):
        again = open_log(tmp_path, config)
    assert again.log_end_offset == 12
    assert any("are missing" in message for message in caplog.messages) is warns


def test_gaps_that_compaction_has_left_are_no_damage(tmp_path: Path) -> None:
    """A topic that is not compacted any more could not be read past the places where its records were taken out."""
    config = LogConfig(internal_segment_bytes=330)
    log = open_log(tmp_path, config)
    for number in range(24):
        append(log, batch([b"%02d" % number]))
    bases = [segment.base_offset for segment in log.local.segments]
    log.close()
    for base in bases[2:4]:
        for path in tmp_path.glob(f"{base:020d}.*"):
            path.unlink()
    # The first of the batches before was taken out as well.
    path = tmp_path / f"{bases[1]:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content[int.from_bytes(content[8:12]) + 12 :])
    for suffix in ("index", "timeindex"):
        (tmp_path / f"{bases[1]:020d}.{suffix}").unlink()
    again = open_log(tmp_path, config, clean=True)
    assert [offset for offset, _ in read_all(again, bases[2])] == list(range(bases[4], 24))
    assert again.local.environment.damages.known({again.topic_partition: again}) == []
