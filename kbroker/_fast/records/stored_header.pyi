"""Headers of record batches and of the messages of older formats: see stored_header.pyx."""

from typing_extensions import Buffer

from kbroker._fast.records.record_batch import BatchInfo

def read_stored_header(
    data: Buffer, position: int = 0, end: int | None = None, *, check_crc: bool = False
) -> BatchInfo: ...
