"""What a follower does before it cuts its log: it reads producers back in slices, and looks whether it still follows.

The cut itself is one turn of the loop.  It needs the state of producers at the new end, which may lie a segment behind
the last snapshot; so that is made first (`storage.log.cut_snapshot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.replication.partition import Role
from kbroker.storage.log.cut_snapshot import write_cut_snapshot
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.replication.partition import Partition


async def cut_log(partition: Partition, offset: Offset, pace: Pace | None) -> bool:
    """Drops a follower's records from `offset` on.

    False where the partition does not follow, or no longer in this epoch by then, or its log has another end: nothing
    is cut.  Raises KafkaStorageError.
    """
    leader_epoch, log, end = partition.leader_epoch, partition.log, partition.log.log_end_offset

    def is_as_it_was() -> bool:
        return (
            partition.role is Role.FOLLOWER
            and partition.leader_epoch == leader_epoch
            and partition.log is log
            and log.log_end_offset == end
        )

    if not is_as_it_was():
        return False
    cuts_records = log.local_log_start_offset <= offset < end
    producers = None
    if pace is not None and cuts_records:
        producers = await write_cut_snapshot(log, offset, pace, is_as_it_was)
        if producers is None:
            return False
    assert is_as_it_was(), f"{partition}: its log has changed since it was read"
    assert producers is None or producers.map_end_offset == offset, (str(partition), producers, offset)
    partition.truncate_to(offset, producers)
    assert log.high_watermark <= log.log_end_offset <= end, (str(partition), log, end)
    return True
