from typing import Any

from kbroker._fast.log.log_fields import LogFields
from kbroker._fast.net.direct import DirectAnswers

class OrdinaryFetch(DirectAnswers):
    def __init__(self, partition_data: Any, file_system: type) -> None: ...
    def read(
        self, log: LogFields, index: int, offset: int, limit: int, at_least_one: bool, committed: bool
    ) -> Any | None: ...
