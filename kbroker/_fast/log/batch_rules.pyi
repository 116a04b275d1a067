from kbroker._fast.log.log_fields import SegmentFields

def fits_segment(
    segment: SegmentFields, limit: int, position: int, size: int, last_offset: int, max_timestamp: int
) -> bool: ...
