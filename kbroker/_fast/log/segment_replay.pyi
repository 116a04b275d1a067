"""Recovery's accounting of what a scan found: see segment_replay.pyx."""

from kbroker._fast.log.index import AppendTail, OffsetTable, TimeTable
from kbroker._fast.log.segment_scan import SegmentScan
from kbroker._fast.records.record_batch import BatchInfo
from kbroker.types import LeaderEpoch, Offset

def account(
    scan: SegmentScan,
    start: int,
    tail: AppendTail,
    offsets: OffsetTable,
    times: TimeTable,
    room: int,
    next_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> tuple[int, Offset]: ...
def last_of_each(scan: SegmentScan, start: int, stop: int, from_offset: Offset) -> list[BatchInfo]: ...
