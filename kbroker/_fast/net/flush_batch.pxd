from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.direct cimport DirectAnswers, DirectRequest
from kbroker._fast.net.connection_interface cimport ConnectionInterface


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

    cdef bint delay_flush(self, ConnectionInterface connection) except -1
    cdef bint add_request(self, ConnectionInterface connection, DirectAnswers direct,
                          const DirectRequest* request) except -1
    cdef int answer_requests(self) except -1
    cdef int _answer_some(self, list connections, DirectRequest* requests) except -1
    cdef int _schedule(self) except -1
