"""What a partition remembers of one idempotent producer: see producer_entry.pyx."""

from typing import Final

RETAINED_BATCHES: Final[int]

class ProducerEntry:
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    current_txn_first_offset: int
    count: int
    last_sequence: int
    last_offset: int
    last_offset_delta: int
    next_sequence: int
    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int = -1,
    ) -> None: ...
    def set_epoch(self, producer_epoch: int) -> bool: ...
    def add(
        self, producer_epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None: ...
    def find(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> tuple[int, int, int] | None: ...
    def remembered(self) -> list[tuple[int, int, int, int]]: ...
