from collections.abc import Iterable, Sequence

class BatchBuilder:
    def __init__(
        self,
        base_offset: int = 0,
        compression: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = -1,
        level: int | None = None,
    ) -> None: ...
    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None: ...
    def extend(
        self, records: Sequence[tuple[bytes | None, bytes | None]], begin: int, timestamp_ms: int, most_bytes: int
    ) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def compressed(self, codec: int, payload: memoryview, level: int | None) -> bytes: ...
    def build(self) -> bytearray: ...
