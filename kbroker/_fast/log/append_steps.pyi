from typing import Any

from kbroker._fast.log.log_fields import LogFields, SegmentFields
from kbroker._fast.records.batch_info import BatchInfo

def count_in(
    log: LogFields, segment: SegmentFields, info: BatchInfo, first: int, size: int, marker: Any, is_one: bool
) -> int: ...
def request_fsync(log: LogFields) -> None: ...
