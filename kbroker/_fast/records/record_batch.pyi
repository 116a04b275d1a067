from collections.abc import Iterator

from typing_extensions import Buffer

from kbroker._fast.records.batch_info import BatchError as BatchError
from kbroker._fast.records.batch_info import BatchInfo as BatchInfo
from kbroker._fast.records.batch_info import CorruptBatchError as CorruptBatchError
from kbroker._fast.records.batch_info import InvalidBatchHeaderError as InvalidBatchHeaderError
from kbroker._fast.records.batch_info import InvalidRecordsError as InvalidRecordsError
from kbroker._fast.records.batch_info import OldMagicError as OldMagicError
from kbroker._fast.records.batch_info import TruncatedBatchError as TruncatedBatchError

BATCH_OVERHEAD: int
LOG_OVERHEAD: int
MAGIC_V2: int
POSITIONS: dict[str, int]

def read_header(buffer: Buffer, pos: int = 0, end: int | None = None) -> BatchInfo: ...
def validate_crc(buffer: Buffer, info: BatchInfo) -> None: ...
def validate(buffer: Buffer, pos: int = 0, end: int | None = None, *, require_key: bool = False) -> BatchInfo: ...
def stamp(
    buffer: Buffer, pos: int, base_offset: int, partition_leader_epoch: int, info: BatchInfo | None = None
) -> None: ...
def stamp_timestamps(
    buffer: Buffer, pos: int, timestamp_type: int, max_timestamp: int, info: BatchInfo | None = None
) -> None: ...
def seal(buffer: Buffer, codec: int, info: BatchInfo | None = None) -> None: ...
def iterate_batches(buffer: Buffer, pos: int = 0, end: int | None = None) -> Iterator[BatchInfo]: ...
