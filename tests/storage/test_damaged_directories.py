"""Partition directories that hold what no log wrote: files of others, indexes that lie."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.errors import CorruptMessageError
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.manager.retention import decide, look_at
from tests.storage.batches import START_MS, TP, append, batch, environment, open_log, read_all

CONFIG = LogConfig(index_interval_bytes=100)
SMALL = LogConfig(index_interval_bytes=100, internal_segment_bytes=900)
COUNT = 50
EXPECTED = [(n, b"%d" % n) for n in range(COUNT)]


def closed_log(directory: Path, config: LogConfig = CONFIG) -> list[Path]:
    log = open_log(directory, config)
    for n in range(COUNT):
        append(log, batch([b"%d" % n], timestamp=START_MS + n))
    log.close(clean=True)
    return sorted(directory.glob("*.index"))


@pytest.mark.parametrize(
    "entry",
    [(0xFFFFFFFF, 0xFFFFFFFF), (1, 0x7FFFFF00), (1, 80), (49, 10), (3, 0), (48, 1 << 31), (0x7FFFFFFF, 75)],
    ids=lambda entry: f"{entry[0]}-at-{entry[1]}",
)
def test_an_index_that_lies_costs_no_records_after_a_clean_stop(tmp_path: Path, entry: tuple[int, int]) -> None:
    """One damaged entry would make the log seem empty, and new records take the offsets of those it holds."""
    index = closed_log(tmp_path / "log")[0]
    content = index.read_bytes()[:-8] + entry[0].to_bytes(4) + entry[1].to_bytes(4)
    for damaged in (content, content[-8:], content[-8:] * 3):
        target = tmp_path / "damaged"
        shutil.copytree(tmp_path / "log", target)
        (target / index.name).write_bytes(damaged)
        log = open_log(target, CONFIG, clean=True, recovery_point=COUNT)
        assert read_all(log) == EXPECTED
        assert append(log, batch([b"next"])).first_offset == COUNT
        shutil.rmtree(target)


def test_a_reader_finds_what_lies_behind_an_index_that_leads_out_of_its_log(tmp_path: Path) -> None:
    """A consumer would be given the next segment's records, and never see those in between."""
    first = closed_log(tmp_path / "log", SMALL)[0]
    first.write_bytes((0).to_bytes(4) + (1 << 30).to_bytes(4))
    log = open_log(tmp_path / "log", SMALL, clean=True, recovery_point=COUNT)
    assert read_all(log) == EXPECTED


@pytest.mark.parametrize("clean", [True, False])
def test_files_that_are_not_a_logs_are_left_alone(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that somebody left in one partition's directory would keep the whole broker from starting."""
    closed_log(tmp_path / "log")
    names = ["notes.log", "abc.index", "1.log", "99999999999999999999.log", "x.snapshot", "backup.deleted", "a.swap"]
    for name in names:
        (tmp_path / "log" / name).write_bytes(b"not a batch")
    log = open_log(tmp_path / "log", CONFIG, clean=clean)
    assert read_all(log) == EXPECTED
    log.close(clean=True)
    assert [(tmp_path / "log" / name).read_bytes() for name in names] == [b"not a batch"] * len(names)
    assert all(name in caplog.text for name in names)
    assert str(tmp_path / "log") in caplog.text


def lengths_lie(path: Path, number: int) -> None:
    """Gives a batch of a segment a length of 0."""
    content = bytearray(path.read_bytes())
    position = 0
    for _ in range(number):
        position += int.from_bytes(content[position + 8 : position + 12]) + 12
    content[position + 8 : position + 12] = bytes(4)
    path.write_bytes(content)


def test_damage_below_the_recovery_point_drops_no_later_segments(tmp_path: Path) -> None:
    """A recovery would take it for a torn write, cut it, and delete everything that follows."""
    closed_log(tmp_path, SMALL)
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) > 3
    lengths_lie(logs[1], 5)
    size = logs[1].stat().st_size
    base, following = (int(path.stem) for path in logs[1:3])
    for point in (base + 8, following - 1):
        env = environment()
        log = open_log(tmp_path, SMALL, recovery_point=point, env=env)
        assert log.log_end_offset == COUNT
        assert read_all(log, following) == EXPECTED[following:]
        assert logs[1].stat().st_size == size
        with pytest.raises(CorruptMessageError, match=rf"{logs[1].name} is damaged"):
            log.read(base + 5, 1000, FetchIsolation.LOG_END, True)
        assert [damage.offset for damage in env.damages.known({TP: log})] == [base + 5]
        log.close(clean=False)


def test_a_truncation_into_damage_ends_the_log_before_it(tmp_path: Path) -> None:
    """Truncating to an offset that cannot be found would fail halfway."""
    closed_log(tmp_path)
    lengths_lie(next(tmp_path.glob("*.log")), 20)
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=COUNT)
    log.truncate_to(20)
    assert read_all(log) == EXPECTED[:20]
    append(log, batch([b"20"]))
    assert read_all(log) == EXPECTED[:21]


def test_retention_deletes_nothing_young_for_a_time_index_that_lacks_its_end(tmp_path: Path) -> None:
    """A torn index would say that a segment's records are old, and all of them would go."""
    log = open_log(tmp_path, SMALL)
    for n in range(COUNT):
        append(log, batch([b"%d" % n], timestamp=START_MS + n * 60_000))
    log.close(clean=True)
    for path in tmp_path.glob("*.timeindex"):
        path.write_bytes(path.read_bytes()[:12])
    config = replace(SMALL, retention_ms=60 * 60_000)
    log = open_log(tmp_path, config, clean=True, recovery_point=COUNT)
    now_ms = START_MS + 68 * 60_000
    decision = decide(look_at(log, now_ms), log.config, now_ms)
    assert decision.segment_count == 0
