import asyncio
from collections.abc import Generator
from typing import Any

class Slices:
    slice_ns: int
    first_slice_ns: int
    count: int
    busy: bool
    def __init__(self, loop: asyncio.AbstractEventLoop | None, slice_us: int = ...) -> None: ...
    def pace(self) -> Pace: ...

class Pace:
    def __await__(self) -> Generator[Any, Any]: ...
