from kbroker._fast.base.counters cimport RequestStats
from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.flush_batch cimport FlushBatch
from kbroker._fast.net.receive_buffer cimport BufferPool
from kbroker._fast.net.send_threads cimport SendThreads


cdef class Reactor:
    cdef readonly object loop
    cdef readonly BufferPool pool
    cdef readonly RequestStats stats
    cdef readonly BusyPoll busy_poll
    cdef readonly SendThreads send_threads
    cdef readonly HelperPool helper_pool
    cdef readonly ReadyQueue ready
    cdef readonly FlushBatch flush_batch
