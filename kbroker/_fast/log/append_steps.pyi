from kbroker._fast.log.log_fields import SegmentFields
from kbroker._fast.records.batch_info import BatchInfo

# `log` is a `LogFields`; the general paths know it by what they need of it (`storage.log.log_view`).
def count_in(
    log: object, segment: SegmentFields, info: BatchInfo, first: int, size: int, marker: object, is_one: bool
) -> int: ...
def request_fsync(log: object) -> None: ...
