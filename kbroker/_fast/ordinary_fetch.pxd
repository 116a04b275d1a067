from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker._fast.direct cimport DirectAnswers
from kbroker._fast.log_fields cimport LogFields, SegmentFields
from kbroker._fast.one_partition cimport OnePartition, Stretch

cdef enum:
    UNKNOWN = -1        # a size


cdef class OrdinaryFetch(DirectAnswers):
    cdef object partition_data
    cdef object file_system
    cdef bint of_one                # whether the last request that was answered, or not, names one partition

    cdef object serve(self, WaitingFetch fetch, bint force)
    cdef int keep(self, WaitingFetch fetch, object ctx, int version, int correlation_id, uint8_t* data,
                  Py_ssize_t size, int wait_ms, tuple partitions, list names) except -1
    cdef object _serve_one(self, object services, object name, int version, int correlation_id, OnePartition* asked,
                           bint force)
    cdef SegmentFields _look(self, object services, object name, OnePartition* asked, Stretch* found)
    cdef SegmentFields find(self, LogFields log, int64_t offset, int64_t limit, bint committed, Stretch* found)


cdef class WaitingFetch:
    cdef OrdinaryFetch reader
    cdef object ctx
    cdef int version
    cdef int correlation_id
    cdef list names
    cdef bytes request
    cdef OnePartition asked         # where it is one: its topic lies in `request`
    cdef uint64_t until_ns

    cdef int _hand_over(self, bint force) except -1


cdef bint confirm(SegmentFields segment, int64_t offset, int64_t limit, bint at_least_one, Stretch* found) noexcept
