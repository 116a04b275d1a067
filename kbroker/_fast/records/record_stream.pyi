from collections.abc import Iterable

from typing_extensions import Buffer

from kbroker._fast.records.record_batch import BatchInfo

class RecordWalker:
    findings: list[tuple[int, int, int, int]]
    def __init__(
        self,
        info: BatchInfo,
        *,
        collect: int = 0,
        every: bool = False,
        require_key: bool = False,
        earliest: int = ...,
        latest: int = ...,
    ) -> None: ...
    def feed(self, chunk: Buffer) -> None: ...
    def finish(self) -> None: ...

def walk_decompressed(info: BatchInfo, chunks: Iterable[Buffer]) -> BatchInfo: ...
