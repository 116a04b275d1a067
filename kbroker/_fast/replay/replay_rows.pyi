from typing import Any

from typing_extensions import Buffer

from kbroker._fast.records.record_packer import BytesParts, HeaderParts, RowColumns

class ReplayRows(RowColumns):
    batch: Any
    def __init__(
        self,
        batch: Any,
        rows: int,
        keys: BytesParts | None,
        values: BytesParts | None,
        headers: HeaderParts | None,
        marks: BytesParts | None,
        due_us: Buffer,
        topics: Buffer,
        partitions: Buffer | None,
        produced: Buffer | None,
    ) -> None: ...
    def check_topics(self, topic_count: int) -> None: ...
