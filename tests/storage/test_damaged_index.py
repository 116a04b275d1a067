"""Look-ups through a damaged offset index: never a wrong answer, and the index is whole again afterwards."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import MAX_TIMESTAMP
from tests.storage.batches import START_MS, append, batch, environment, open_log, read_all

RECORDS = 60


def make(directory: Path) -> tuple[UnifiedLog, bytes]:
    """Two segments; the first has an index entry for every other batch, and its time index is out of the way."""
    log = open_log(directory, settings())
    for at in range(RECORDS):
        append(log, batch([b"value-%d" % at] * 2))
        if at == RECORDS // 2 - 1:
            log.roll()
    log.close()
    return log, (directory / f"{0:020d}.index").read_bytes()


def settings() -> LogConfig:
    return LogConfig(index_interval_bytes=100)


def reopened(directory: Path) -> UnifiedLog:
    return open_log(directory, settings(), clean=True, recovery_point=2 * RECORDS, env=environment())


def test_every_flipped_bit_of_an_offset_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer would get CORRUPT_MESSAGE for ever, or miss records without a word."""
    caplog.set_level(logging.ERROR, "kbroker.storage")
    _, whole = make(tmp_path)
    path = tmp_path / f"{0:020d}.index"
    assert len(whole) >= 8 * 8
    healed = 0
    for bit in range(len(whole) * 8):
        bad = bytearray(whole)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        log = reopened(tmp_path)
        for offset in range(0, 2 * RECORDS, 7):
            first = read_all(log, offset)[:1]
            assert first[0][0] == offset, f"bit {bit}, offset {offset}: {first}"
        healed += path.read_bytes() == whole
        log.close(clean=False)
    assert healed > len(whole), "no damage was mended"


def test_damaged_index_is_told_and_built_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each read of the segment would begin at its start for as long as the broker runs."""
    _, whole = make(tmp_path)
    path = tmp_path / f"{0:020d}.index"
    # Every entry leads one byte too far.
    path.write_bytes(b"".join(whole[at : at + 7] + bytes((whole[at + 7] ^ 1,)) for at in range(0, len(whole), 8)))
    log = reopened(tmp_path)
    assert read_all(log, 40)[0][0] == 40
    assert path.read_bytes() == whole
    assert [record for record, _ in read_all(log)] == list(range(2 * RECORDS))
    assert len([line for line in caplog.messages if "leads astray" in line]) == 1


def test_directory_in_place_of_an_index_is_named(tmp_path: Path) -> None:
    """Who has to find the broken file among thousands of segments would read "Is a directory", and not which."""
    make(tmp_path)
    path = tmp_path / f"{RECORDS:020d}.index"
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=rf"Is a directory: '.*{path.name}'"):
        reopened(tmp_path)


def test_every_flipped_bit_of_a_time_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that starts at a time would miss records, or get older ones, without a word."""
    caplog.set_level(logging.ERROR, "kbroker.storage")
    log = open_log(tmp_path, settings())
    for at in range(RECORDS):
        append(log, batch([b"value-%d" % at] * 2, timestamp=START_MS + 20 * at))
        if at == RECORDS // 2 - 1:
            log.roll()
    log.close()
    for base in (0, RECORDS):
        path = tmp_path / f"{base:020d}.timeindex"
        whole = path.read_bytes()
        assert len(whole) >= 12 * 8
        for bit in range(len(whole) * 8):
            bad = bytearray(whole)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            again = reopened(tmp_path)
            for at in (0, 7, RECORDS // 2 - 1, RECORDS // 2, RECORDS - 1):
                found = again.offset_for_timestamp(START_MS + 20 * at - 3)
                assert found is not None, f"{path.name} bit {bit}, batch {at}"
                assert found[:2] == (START_MS + 20 * at, 2 * at), f"{path.name} bit {bit}, batch {at}"
            assert again.offset_for_timestamp(START_MS + 20 * RECORDS) is None
            latest = again.offset_for_timestamp(MAX_TIMESTAMP)
            assert latest is not None, f"{path.name} bit {bit}"
            assert latest[:2] == (START_MS + 20 * (RECORDS - 1), 2 * (RECORDS - 1)), f"{path.name} bit {bit}"
            again.close(clean=False)
        path.write_bytes(whole)
