from collections.abc import Callable, Iterable
from typing import TypeVar

from typing_extensions import Buffer

from kbroker._fast.records.record_batch import BatchInfo

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]

def decode_records(
    payload: Buffer,
    info: BatchInfo,
    factory: Callable[[int, int, bytes | None, bytes | None, Headers], T],
    pos: int = 0,
    limit: int = -1,
) -> tuple[list[T], int]: ...
def gather_newest(payload: Buffer, newest: dict[bytes, bytes | None], last_type: int) -> bool: ...
def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str, Buffer | None]] = (),
) -> None: ...
