from asyncio import AbstractEventLoop

class ReceiveBuffer:
    capacity: int
    exports: int
    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class BufferPool:
    buffer_bytes: int
    limit_bytes: int
    used_bytes: int
    spare_bytes: int
    spare_limit_bytes: int
    held: int
    waiting_count: int
    loop: AbstractEventLoop | None
    def __init__(self, buffer_bytes: int = 131072, limit_bytes: int = 0, spare_limit_bytes: int = 8388608) -> None: ...
    def wake_waiting(self) -> None: ...
    def trim(self) -> int: ...
