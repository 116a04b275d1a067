from libc.stdint cimport int64_t, uint64_t

cdef enum:
    API_SLOTS = 129
    BUCKETS = 22

cdef struct ApiTotals:
    uint64_t count
    uint64_t errors
    uint64_t bytes_in
    uint64_t bytes_out
    uint64_t sum_ns
    uint64_t buckets[BUCKETS]


cdef struct WaitTotals:
    # Of requests that were answered later: how long each waited, and `moved`: what to add to an API's buckets, whose
    # values are times in all, to have those of its work alone.
    uint64_t count
    uint64_t sum_ns
    uint64_t buckets[BUCKETS]
    int64_t moved[BUCKETS]


cdef int bucket_of(uint64_t total_ns) noexcept nogil


cdef class RequestStats:
    cdef ApiTotals totals[API_SLOTS]
    cdef WaitTotals waits[API_SLOTS]
    cdef ApiTotals from_followers
    cdef WaitTotals waits_of_followers
    cdef readonly dict codes

    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out) noexcept nogil
    cdef void record_wait(self, int api_key, uint64_t wait_ns, uint64_t total_ns) noexcept nogil
    cdef void record_follower(self, uint64_t wait_ns, uint64_t total_ns) noexcept nogil
    cdef int count_code(self, int api_key, int code) except -1
    cdef void count_error(self, int api_key) noexcept nogil


cdef class Histogram:
    cdef uint64_t sum_ns
    cdef uint64_t buckets[BUCKETS]

    cdef void record(self, uint64_t value_ns) noexcept nogil
