from collections.abc import Callable
from typing import Any

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.log.log_fields import LateRead
from kbroker._fast.wire.codec import Program

class FetchVersions:
    def __init__(
        self,
        *,
        first: int,
        last: int,
        throttle_times: int,
        max_bytes: int,
        isolation_levels: int,
        log_starts: int,
        sessions: int,
        leader_epochs: int,
        racks: int,
        flexible: int,
        topic_ids: int,
        replica_states: int,
    ) -> None: ...

class FetchRules:
    def __init__(
        self,
        versions: FetchVersions,
        file_system: type,
        read_partition: Callable[[Any, int, int, bool, FetchTarget, int, bool, Any], tuple[Any, bool, LateRead | None]],
        compile_answer: Callable[[int], Program],
    ) -> None: ...
