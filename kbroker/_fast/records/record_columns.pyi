from collections.abc import Callable, Iterable

from typing_extensions import Buffer

from kbroker._fast.base.column_buffer import ColumnBuffer

KEYS: int
VALUES: int
TIMESTAMPS: int
HEADERS: int

Bytes = tuple[ColumnBuffer | None, ColumnBuffer, ColumnBuffer]
Headers = tuple[ColumnBuffer | None, ColumnBuffer, Bytes, Bytes, bool]
Taken = tuple[int, ColumnBuffer, ColumnBuffer | None, ColumnBuffer | None, Bytes | None, Bytes | None, Headers | None]

class RecordColumns:
    next_offset: int
    position: int
    done: bool
    def __init__(
        self,
        start: int,
        stop: int,
        decompress: Callable[[int, memoryview], Buffer],
        *,
        wants: int = ...,
        max_rows: int = 65536,
        max_bytes: int = 8388608,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    def set_aborted(self, transactions: Iterable[tuple[int, int]]) -> None: ...
    def begin(self, frame: Buffer, pos: int = 0, end: int | None = None) -> None: ...
    def fill(self) -> bool: ...
    def take(self) -> Taken: ...
