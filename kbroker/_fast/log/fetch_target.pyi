from kbroker._fast.log.log_fields import RecordSource
from kbroker.types import LeaderEpoch, Offset

class FetchTarget:
    topic: str | None
    topic_id: bytes
    index: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    answered_high_watermark: Offset
    answered_log_start_offset: Offset
    refusal: int
    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int = -1,
    ) -> None: ...
    def update(self, newer: FetchTarget) -> None: ...
    def must_respond(self, error_code: int, size: int, high_watermark: Offset, log_start_offset: Offset) -> bool: ...

def is_enough(size: int, min_bytes: int, max_wait_ms: int, may_wait: bool, urgent: bool, force: bool) -> bool: ...
def enter(fetch: object, sources: tuple[RecordSource, ...]) -> None: ...
def leave(fetch: object, sources: tuple[RecordSource, ...]) -> None: ...
