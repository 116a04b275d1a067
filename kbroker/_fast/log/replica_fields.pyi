from typing import Any, TypeVar

from kbroker._fast.log.log_fields import PartitionFields

Followed = TypeVar("Followed", bound=FollowedFields)

class FollowerFields:
    log_end_offset: int
    log_start_offset: int
    leader_end: int
    fetched_at: float
    caught_up_at: float
    def fetched(self, fetch_offset: int, log_start_offset: int, leader_end: int, now: float) -> bool: ...
    def asks_again(self, fetch_offset: int, log_start_offset: int, now: float) -> bool: ...

class FollowedFields:
    partition: PartitionFields
    retry_at: float
    has_to_truncate: bool
    is_asked: bool
    def __init__(self, partition: PartitionFields, has_to_truncate: bool) -> None: ...
    def note_asked(
        self, offset: int, log_start_offset: int, leader_epoch: int, last_epoch: int, max_bytes: int
    ) -> None: ...

def unsettled(
    followed: dict[Any, Followed], now: float, max_bytes: int, truncates_on_fetch: bool
) -> list[Followed]: ...
