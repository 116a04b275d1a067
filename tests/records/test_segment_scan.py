"""Recovery's scan of a segment file."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from kbroker._fast.log.segment_scan import SegmentScan, scan_segment
from tests.records.reference import encode_batch, simple_records


class Segment:
    """A file of batches of one to three records, some larger than the scan's buffer if asked for."""

    def __init__(self, path: pathlib.Path, sizes: list[int]) -> None:
        self.path = path
        self.positions: list[int] = []
        offset = 0
        with path.open("wb") as file:
            for index, size in enumerate(sizes):
                count = 1 + index % 3
                self.positions.append(file.tell())
                values: list[bytes | None] = [bytes(size)] * count
                file.write(encode_batch(simple_records(values), count, base_offset=offset))
                offset += count
        self.size = path.stat().st_size
        self.fd = os.open(path, os.O_RDWR)

    def scan(self, *, check_crc: bool = True) -> SegmentScan:
        return scan_segment(self.fd, 0, self.size, check_crc=check_crc)


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> Iterator[Segment]:
    made = Segment(tmp_path / "segment", [100, 5000, 0, 300_000, 2_000_000, 7, 1_048_576, 30])
    yield made
    os.close(made.fd)


def test_all_batches(segment: Segment) -> None:
    """Recovery would throw away good records."""
    scan = segment.scan()
    assert [info.position for info in scan.batches] == segment.positions
    assert [info.base_offset for info in scan.batches] == [0, 1, 3, 6, 7, 9, 12, 13]
    assert (scan.valid_end, scan.complete, scan.reason) == (segment.size, True, None)
    assert [info.position for info in segment.scan(check_crc=False).batches] == segment.positions


def test_in_portions(segment: Segment) -> None:
    """A segment of ten million batches would not fit into memory while it is recovered."""
    positions: list[int] = []
    at = 0
    while True:
        scan = scan_segment(segment.fd, at, segment.size, max_batches=3)
        positions += [info.position for info in scan.batches]
        at = scan.valid_end
        if scan.complete:
            break
        assert len(scan.batches) == 3
    assert positions == segment.positions


def test_nothing_to_scan(segment: Segment) -> None:
    """Recovery of an empty segment would fail."""
    scan = scan_segment(segment.fd, segment.size, segment.size)
    assert (scan.batches, scan.valid_end, scan.complete, scan.reason) == ([], segment.size, True, None)


@pytest.mark.parametrize("index", [0, 3, 4, 7])
def test_a_changed_byte_ends_the_scan(segment: Segment, index: int) -> None:
    """Damaged records would be served after a crash."""
    at = segment.positions[index] + 61 + 3
    byte = os.pread(segment.fd, 1, at)[0]
    os.pwrite(segment.fd, bytes([byte ^ 4]), at)
    scan = segment.scan()
    assert len(scan.batches) == index
    assert scan.valid_end == segment.positions[index]
    assert scan.complete
    assert scan.reason is not None
    assert "Record is corrupt (stored crc" in scan.reason
    assert len(segment.scan(check_crc=False).batches) == len(segment.positions)


@pytest.mark.parametrize("cut", [1, 15, 60, 61, 90])
def test_a_torn_end(segment: Segment, cut: int) -> None:
    """The last write before a crash would be taken for whole."""
    os.ftruncate(segment.fd, segment.size - cut)
    for end in (segment.size - cut, segment.size):
        scan = scan_segment(segment.fd, 0, end)
        assert len(scan.batches) == len(segment.positions) - 1
        assert scan.valid_end == segment.positions[-1]
        assert scan.reason is not None


def test_zeros_behind_the_end(segment: Segment) -> None:
    """A segment allocated ahead would be read as endless empty batches."""
    os.ftruncate(segment.fd, segment.size + 4096)
    scan = scan_segment(segment.fd, 0, segment.size + 4096)
    assert scan.valid_end == segment.size
    assert scan.reason is not None
    assert "Record size 0 is less than the minimum" in scan.reason


def test_offsets_that_go_back(segment: Segment) -> None:
    """Two records at one offset would be served after a bad copy."""
    os.pwrite(segment.fd, (5).to_bytes(8, "big"), segment.positions[4])
    scan = segment.scan()
    assert len(scan.batches) == 4
    assert scan.reason is not None
    assert "base offset 5 is not past" in scan.reason


def test_file_shorter_than_said(segment: Segment) -> None:
    """A wrong size would send recovery into an endless loop."""
    scan = scan_segment(segment.fd, 0, segment.size + 10_000)
    assert (scan.valid_end, scan.complete, scan.reason) == (segment.size, True, None)


def test_errors_of_the_system(segment: Segment) -> None:
    """An unreadable disk would look like an empty segment, and be truncated."""
    with pytest.raises(OSError, match="reading at position"):
        scan_segment(9999, 0, 100)
    with pytest.raises(ValueError, match="cannot scan"):
        scan_segment(segment.fd, 5, 3)
