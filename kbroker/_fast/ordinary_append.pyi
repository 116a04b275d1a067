from typing import Any

class AppendRules:
    def __init__(
        self,
        max_message_bytes: int,
        before_max_ms: int,
        after_max_ms: int,
        segment_bytes: int,
        needs_keys: bool,
        long_bytes: int,
        expansion_bytes: int,
    ) -> None: ...

def append_ordinary(log: Any, records: memoryview | bytearray | None, leader_epoch: int, now_ms: int) -> int: ...

class OrdinaryProduce:
    def __init__(
        self, response: Any, topic_response: Any, partition_response: Any, internal: frozenset[str]
    ) -> None: ...
    def serve(self, ctx: Any, request: Any) -> Any | None: ...
