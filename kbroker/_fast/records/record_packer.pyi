from typing_extensions import Buffer

BytesParts = tuple[Buffer | None, Buffer, Buffer | None, int]
HeaderParts = tuple[Buffer | None, Buffer, int, int, BytesParts, BytesParts]

class RowColumns:
    rows: int
    def __init__(
        self,
        rows: int,
        keys: BytesParts | None,
        values: BytesParts | None,
        timestamps: Buffer | None = None,
        headers: HeaderParts | None = None,
    ) -> None: ...
    def fill_partitions(self, partitions: Buffer, partition_count: int) -> None: ...

class BatchPacker:
    limit_bytes: int
    count: int
    base_timestamp: int
    max_timestamp: int
    def __init__(self, limit_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def append(self, columns: RowColumns, rows: Buffer, at: int, now_ms: int) -> int: ...
    def take(self, room: int = 0) -> bytearray: ...
