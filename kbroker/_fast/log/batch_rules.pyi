from enum import IntEnum

from kbroker._fast.log.log_fields import AppendRules, SegmentFields
from kbroker._fast.records.batch_info import BatchInfo

FIRST_PRODUCE_VERSION_WITH_ZSTD: int
MAX_RELATIVE_OFFSET: int

class ClientFault(IntEnum):
    CLIENT_FAULT_NONE = 0
    CLIENT_FAULT_BASE_OFFSET = 1
    CLIENT_FAULT_CONTROL = 2
    CLIENT_FAULT_SEQUENCE = 3

class RollCause(IntEnum):
    ROLL_NOT = 0
    ROLL_SIZE = 1
    ROLL_TIME = 2
    ROLL_INDEX_FULL = 3
    ROLL_OFFSET = 4

def roll_cause(
    segment: SegmentFields, limit: int, position: int, size: int, last_offset: int, max_timestamp: int
) -> int: ...
def check_stored_as_sent(rules: AppendRules, info: BatchInfo, size: int, now_ms: int) -> bool: ...
def find_client_fault(info: BatchInfo) -> int: ...
def check_times(earliest_ms: int, latest_ms: int, now_ms: int, before_max_ms: int, after_max_ms: int) -> bool: ...
def check_keys(needs_keys: bool, keyless_count: int) -> bool: ...
def check_codec(codec: int, produce_version: int) -> bool: ...
def check_offset(segment: SegmentFields, last_offset: int) -> bool: ...
