from typing import Any

from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.base.ready_queue import ReadyQueue
from kbroker._fast.log.log_fields import PurgatoryFields
from kbroker._fast.net.busy_poll import BusyPoll

class FlushBatch:
    def __init__(
        self,
        loop: Any,
        busy_poll: BusyPoll,
        helper_pool: HelperPool,
        ready: ReadyQueue,
        purgatory: PurgatoryFields | None = None,
    ) -> None: ...
    def flush(self) -> None: ...
