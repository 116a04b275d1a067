"""What all connections of a broker share, whichever listener accepted them: the loop, memory, threads, counters.

Helper threads and busy polling exist once, so that `num.network.threads` and `socket.busy.poll.us` mean the same with
one listener and with five, and requests from different listeners are answered together (`FlushBatch`).
"""

from kbroker._fast.base.counters cimport RequestStats
from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.flush_batch cimport FlushBatch
from kbroker._fast.net.receive_buffer cimport BufferPool
from kbroker._fast.net.send_threads cimport SendThreads


cdef class Reactor:
    """One for each loop.

    `threads`: how many may help the loop, at sending and at appending each.  `purgatory`: the fields of the broker's
    waiting fetches, None where there are none; what becomes ready there and here waits in one queue, `ready`.
    """

    def __init__(self, loop, BufferPool pool not None, RequestStats stats not None, long busy_poll_us=0,
                 int threads=0, PurgatoryFields purgatory=None):
        self.loop = loop
        self.pool = pool
        pool.loop = loop
        self.stats = stats
        self.busy_poll = BusyPoll(loop, busy_poll_us)
        self.send_threads = SendThreads(loop, threads)
        self.helper_pool = HelperPool(threads)
        self.ready = ReadyQueue(loop) if purgatory is None or purgatory.ready is None else purgatory.ready
        self.flush_batch = FlushBatch(loop, self.busy_poll, self.helper_pool, self.ready, purgatory)

    def change_threads(self, int threads) -> None:
        """Let so many threads help the loop, at sending and at appending each."""
        self.send_threads.change(threads)
        self.helper_pool.change(threads)

    def close(self) -> None:
        """End the threads, after the last connection was closed."""
        self.send_threads.close()
        self.helper_pool.close()
