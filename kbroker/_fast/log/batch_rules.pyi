from kbroker._fast.log.log_fields import AppendRules, SegmentFields
from kbroker._fast.records.batch_info import BatchInfo

def fits_segment(
    segment: SegmentFields, limit: int, position: int, size: int, last_offset: int, max_timestamp: int
) -> bool: ...
def is_stored_as_sent(rules: AppendRules, info: BatchInfo, size: int, now_ms: int) -> bool: ...
