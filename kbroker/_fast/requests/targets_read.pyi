from typing import Any

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.gate.gate import Gate
from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.log.log_fields import LateRead
from kbroker._fast.net.pending import Pending
from kbroker._fast.requests.fetch_answer import FetchRules

class TargetsRead:
    def __init__(
        self,
        rules: FetchRules,
        services: Any,
        version: int,
        correlation_id: int,
        replica_id: int,
        committed: bool,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        targets: list[FetchTarget],
        session: Any,
        incremental: bool,
        reader: Any = None,
        gate: Gate | None = None,
    ) -> None: ...
    @property
    def late(self) -> list[LateRead]: ...
    def start(self) -> Pending: ...
    def delayed(self) -> Pending: ...
    def begin(self) -> None: ...
    def look(self, count: int) -> bool: ...
    def is_enough(self, force: bool) -> bool: ...
    def write(self, count: int) -> bytes | list[bytes | FileRegion] | None: ...
