from typing import Any, TypeVar

from kbroker._fast.log.log_fields import PartitionFields
from kbroker.types import LeaderEpoch, Offset

Followed = TypeVar("Followed", bound=FollowedFields)

class FollowerFields:
    log_end_offset: Offset
    log_start_offset: Offset
    leader_end: Offset
    fetched_at: float
    caught_up_at: float
    def fetched(self, fetch_offset: Offset, log_start_offset: Offset, leader_end: Offset, now: float) -> bool: ...
    def asks_again(self, fetch_offset: Offset, log_start_offset: Offset, now: float) -> bool: ...

class FollowedFields:
    partition: PartitionFields
    retry_at: float
    has_to_truncate: bool
    is_asked: bool
    def __init__(self, partition: PartitionFields, has_to_truncate: bool) -> None: ...
    def note_asked(
        self,
        offset: Offset,
        log_start_offset: Offset,
        leader_epoch: LeaderEpoch,
        last_epoch: LeaderEpoch,
        max_bytes: int,
    ) -> None: ...

def unsettled(
    followed: dict[Any, Followed], now: float, max_bytes: int, truncates_on_fetch: bool
) -> list[Followed]: ...
