from libc.stdint cimport uint8_t, uint64_t

from kbroker._fast.base.counters cimport RequestStats
from kbroker._fast.net.answer_memo cimport AnswerRenewal
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.route cimport Route

cdef enum:
    NOT_COUNTED = -1


cdef class RequestContext:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly ConnectionInterface connection
    cdef readonly object services
    cdef public object waiting
    cdef public object left
    cdef public bint cacheable
    cdef public AnswerRenewal renewal
    cdef readonly bytes frame
    cdef bint by_itself
    cdef tuple key
    cdef Route route
    cdef uint64_t started_ns
    cdef Py_ssize_t bytes_in
    cdef Py_ssize_t body_bytes
    cdef readonly Gate gate
    cdef int throttle_ms
    cdef bint withheld
    cdef uint64_t resumed_ns
    cdef uint64_t spent_ns
    cdef uint64_t waits_from_ns     # 0: it was not found waiting
    cdef uint64_t waited_ns
    cdef uint64_t queued_ns         # before it was begun, to be answered with others
    cdef public bint by_follower
    cdef list codes                 # errors within its answer

    cdef int lower_limits(self, uint8_t* body, Py_ssize_t size) except -1
    cdef void rest(self) noexcept
    cdef int record(self, RequestStats stats, uint64_t now, Py_ssize_t bytes_out) except -1
    cdef void resume(self) noexcept
    cdef int count(self, Py_ssize_t bytes_out) except -1
    cdef object throttled(self, object frame)
