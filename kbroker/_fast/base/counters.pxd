from libc.stdint cimport uint64_t

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


cdef int bucket_of(uint64_t total_ns) noexcept nogil


cdef class RequestStats:
    cdef ApiTotals totals[API_SLOTS]

    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out) noexcept nogil
    cdef void count_error(self, int api_key) noexcept nogil


cdef class Histogram:
    cdef uint64_t sum_ns
    cdef uint64_t buckets[BUCKETS]

    cdef void record(self, uint64_t value_ns) noexcept nogil
