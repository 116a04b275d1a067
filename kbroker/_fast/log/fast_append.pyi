from kbroker._fast.log.log_fields import LogFields
from kbroker.types import LeaderEpoch, Offset

def append_sound(log: LogFields, batch: bytearray, leader_epoch: LeaderEpoch, now_ms: int) -> Offset: ...
