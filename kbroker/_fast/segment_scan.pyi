from kbroker._fast.record_batch import BatchInfo

class SegmentScan:
    batches: list[BatchInfo]
    valid_end: int
    complete: bool
    reason: str | None

def scan_segment(
    fd: int, start_pos: int, end_pos: int, *, check_crc: bool = True, max_batches: int = 65536
) -> SegmentScan: ...
