"""Recovery's reading of a segment: see segment_scan.pyx."""

from kbroker._fast.records.record_batch import BatchInfo
from kbroker.types import Position

class SegmentScan:
    valid_end: Position
    complete: bool
    reason: str | None
    @property
    def batches(self) -> list[BatchInfo]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, at: int) -> BatchInfo: ...

def scan_segment(
    fd: int, start_pos: int, end_pos: int, *, check_crc: bool = True, max_batches: int = 65536
) -> SegmentScan: ...
