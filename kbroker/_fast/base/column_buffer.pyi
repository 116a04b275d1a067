from typing import final

from typing_extensions import Buffer

@final
class ColumnBuffer(Buffer):
    size: int
    def __len__(self) -> int: ...
