from asyncio import AbstractEventLoop

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.log.log_fields import PurgatoryFields
from kbroker._fast.net.busy_poll import BusyPoll
from kbroker._fast.net.flush_batch import FlushBatch
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.send_threads import SendThreads

class Reactor:
    loop: AbstractEventLoop
    pool: BufferPool
    stats: RequestStats
    busy_poll: BusyPoll
    send_threads: SendThreads
    helper_pool: HelperPool
    flush_batch: FlushBatch
    def __init__(
        self,
        loop: AbstractEventLoop,
        pool: BufferPool,
        stats: RequestStats,
        busy_poll_us: int = 0,
        threads: int = 0,
        purgatory: PurgatoryFields | None = None,
    ) -> None: ...
    def change_threads(self, threads: int) -> None: ...
    def close(self) -> None: ...
