from libc.stdint cimport int64_t, uint64_t

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.direct cimport DirectAnswers, DirectRequest
from kbroker._fast.net.connection_interface cimport ConnectionInterface

cdef enum:
    # Bytes that are sent at once before the loop looks at its sockets, those that are copied with their weight
    # (`answer_queue`); and so many are appended at once.
    TURN_BYTES = 2097152

# What one connection, or all at the end of a turn, may still do before others have theirs; zeros before it begins.
cdef struct TurnShare:
    double until
    int64_t sent_until


cdef class FlushBatch:
    cdef object loop
    cdef object services
    cdef BusyPoll busy_poll
    cdef HelperPool helper_pool
    cdef PurgatoryFields purgatory
    cdef ReadyQueue ready
    cdef list unflushed
    cdef list deferred
    cdef DirectRequest* requests
    cdef Py_ssize_t capacity
    cdef DirectAnswers direct
    cdef bint crowded
    cdef bint scheduled
    cdef int single_count
    cdef Py_ssize_t deferred_bytes
    # When those that are being answered together were begun.
    cdef uint64_t begun_ns
    # What was sent on this loop, with its weight, and up to where that may go until the next flush.
    cdef int64_t sent_bytes
    cdef int64_t sent_until

    cdef bint delay_flush(self, ConnectionInterface connection) except -1
    cdef bint add_request(self, ConnectionInterface connection, object services, DirectAnswers direct,
                          const DirectRequest* request) except -1
    cdef int answer_requests(self) except -1
    cdef int _answer_first(self, Py_ssize_t most) except -1
    cdef int _answer_some(self, list connections, DirectRequest* requests) except -1
    cdef bint is_over(self, TurnShare* share, double now) noexcept
    cdef Py_ssize_t most_now(self, Py_ssize_t most) noexcept
    cdef int note_sent(self, int64_t size) except -1
    cdef int _send_to(self, list connections) except -1
    cdef int _schedule(self) except -1
