from typing_extensions import Buffer

from kbroker._fast.records.record_batch import BatchInfo

def walk_compressed(info: BatchInfo, batch: Buffer, limit_bytes: int) -> bool: ...
