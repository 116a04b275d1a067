from kbroker._fast.log.log_fields import LogFields

def append_batch(
    log: LogFields,
    records: memoryview | bytearray | None,
    leader_epoch: int,
    now_ms: int,
    transactional: bool = False,
) -> int: ...
