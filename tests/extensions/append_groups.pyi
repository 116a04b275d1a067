from collections.abc import Sequence

from typing_extensions import Buffer

from kbroker._fast.log.log_fields import LogFields

def append_batch(
    log: LogFields, records: Buffer, leader_epoch: int, now_ms: int, transactional: bool = False
) -> int: ...
def append_together(log: LogFields, batches: Sequence[Buffer], leader_epoch: int, now_ms: int) -> list[int | None]: ...
