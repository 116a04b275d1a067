"""Recovery's accounting of what a scan found: see segment_replay.pyx."""

from kbroker._fast.log.index import AppendTail, OffsetTable, TimeTable
from kbroker._fast.log.segment_scan import SegmentScan
from kbroker._fast.records.record_batch import BatchInfo

def account(
    scan: SegmentScan,
    start: int,
    tail: AppendTail,
    offsets: OffsetTable,
    times: TimeTable,
    room: int,
    next_offset: int,
    leader_epoch: int,
) -> tuple[int, int]: ...
def last_of_each(scan: SegmentScan, start: int, stop: int, from_offset: int) -> list[BatchInfo]: ...
