from libc.stdint cimport int32_t, int64_t

from kbroker._fast.log.log_fields cimport PartitionFields


cdef class FollowerFields:
    cdef public int64_t log_end_offset
    cdef public int64_t log_start_offset
    cdef public int64_t leader_end
    cdef public double fetched_at
    cdef public double caught_up_at

    cdef bint _note(self, int64_t fetch_offset, int64_t log_start_offset, int64_t leader_end, double now) except -1
    cpdef bint asks_again(self, int64_t fetch_offset, int64_t log_start_offset, double now) except -1


cdef class FollowedFields:
    cdef readonly PartitionFields partition
    cdef public double retry_at
    cdef public bint has_to_truncate
    cdef public bint is_asked
    cdef int64_t offset
    cdef int64_t log_start_offset
    cdef int32_t leader_epoch
    cdef int32_t last_epoch
    cdef int32_t max_bytes

    cdef bint is_settled(self, double now, int32_t max_bytes, bint truncates_on_fetch) noexcept
