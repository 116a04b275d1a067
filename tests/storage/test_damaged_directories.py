"""Partition directories that hold what no log wrote: files of others, indexes that lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from tests.storage.batches import START_MS, append, batch, open_log, read_all

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
