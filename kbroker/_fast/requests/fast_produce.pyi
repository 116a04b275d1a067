from collections.abc import Callable
from typing import Any

from kbroker._fast.net.direct import DirectAnswers
from kbroker.types import Offset

Appended = list[tuple[Offset, Offset] | None]

class ProduceVersions:
    def __init__(
        self,
        *,
        first: int,
        last: int,
        flexible: int,
        topic_ids: int,
        log_append_times: int,
        log_starts: int,
        record_errors: int,
    ) -> None: ...

class FastProduce(DirectAnswers):
    def __init__(
        self,
        internal: frozenset[str],
        system_clock: type,
        versions: ProduceVersions,
        finish: Callable[[Any, Any, Appended], Any],
    ) -> None: ...
