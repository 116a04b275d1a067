from kbroker._fast.log.log_fields import RecordSource

class FetchTarget:
    topic: str | None
    topic_id: bytes
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    answered_high_watermark: int
    answered_log_start_offset: int
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
    def must_respond(self, error_code: int, size: int, high_watermark: int, log_start_offset: int) -> bool: ...

def is_enough(size: int, min_bytes: int, max_wait_ms: int, may_wait: bool, urgent: bool, force: bool) -> bool: ...
def enter(fetch: object, sources: tuple[RecordSource, ...]) -> None: ...
def leave(fetch: object, sources: tuple[RecordSource, ...]) -> None: ...
