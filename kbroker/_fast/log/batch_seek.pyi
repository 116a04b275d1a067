"""The short forward walk over batch headers that completes a sparse index lookup: see batch_seek.pyx."""

from kbroker.types import LeaderEpoch, Offset, Position

def find_batch(
    data: bytes | bytearray | memoryview,
    target_offset: Offset,
    position: Position,
    end: int,
    least_offset: Offset = ...,
) -> tuple[Position, int, Offset, Offset]: ...
def max_timestamp_of(header: bytes | bytearray | memoryview) -> int: ...
def walk_batches(
    data: bytes | bytearray | memoryview, position: Position, end: int
) -> tuple[Position, Offset, int, Offset, LeaderEpoch]: ...

class FollowUps:
    def find(self, offset: Offset) -> Position: ...
    def note(self, offset: Offset, position: Position) -> None: ...
