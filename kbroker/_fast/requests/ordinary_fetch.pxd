from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker._fast.net.direct cimport DirectAnswers
from kbroker._fast.log.log_fields cimport LogFields, SegmentFields
from kbroker._fast.requests.one_partition cimport OnePartition, Stretch
from kbroker._fast.net.pending cimport DelayedFetch

cdef enum:
    UNKNOWN = -1        # a size

cdef class WaitingFetch(DelayedFetch)


cdef class OrdinaryFetch(DirectAnswers):
    cdef object partition_data
    cdef object file_system
    cdef bint of_one                # whether the request that was served last names one partition
    cdef int wait_ms
    cdef list names
    cdef tuple places

    cdef object serve(self, object services, int version, int correlation_id, const uint8_t* data, Py_ssize_t size,
                      bint force)
    cdef WaitingFetch _wait(self, object services, int version, int correlation_id, const uint8_t* data,
                            Py_ssize_t size)
    cdef WaitingFetch waiting(self, object services)
    cdef void found_too_little(self, int wait_ms, list names, tuple places) noexcept
    cdef object _serve_one(self, object services, object name, int version, int correlation_id, OnePartition* asked,
                           bint force)
    cdef SegmentFields _look(self, object services, object name, OnePartition* asked, Stretch* found)
    cdef SegmentFields find(self, LogFields log, int64_t offset, int64_t limit, bint committed, Stretch* found)


cdef class WaitingFetch(DelayedFetch):
    cdef OrdinaryFetch reader
    cdef int version
    cdef int correlation_id
    cdef list names                 # of its topics
    cdef bytes request
    cdef uint64_t until_ns

    cdef object serve(self, bint force)
    cdef int hand_over(self, bint force) except -1
    cdef int resume(self, object request) except -1


cdef bint confirm(SegmentFields segment, int64_t offset, int64_t limit, bint at_least_one, Stretch* found) noexcept
