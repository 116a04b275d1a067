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
    # Of requests without their headers.
    uint64_t body_bytes
    uint64_t sizes[BUCKETS]


cdef struct PartTotals:
    # A part of requests' times, of those requests that had it.
    uint64_t count
    uint64_t sum_ns
    uint64_t buckets[BUCKETS]


cdef struct TimeParts:
    # Until a request is begun, while it waits for something else, for what its client is throttled; until its answer is
    # first given to the socket, and until that has taken all of it.
    PartTotals queued
    PartTotals waited
    PartTotals throttled
    PartTotals held
    PartTotals sent
    # What to add to an API's buckets, whose values are times from a request to its answer: to have those of the work
    # alone, and those up to the answer's last byte.
    int64_t worked[BUCKETS]
    int64_t whole[BUCKETS]


# What happened to a request before its answer was ready.
cdef struct RequestTimes:
    uint64_t total_ns
    uint64_t queued_ns
    uint64_t waited_ns
    uint64_t throttled_ns


# What happened to its answer.
cdef struct AnswerTimes:
    uint64_t ready_ns       # the time from the request to here
    uint64_t held_ns
    uint64_t sent_ns


cdef int bucket_of(uint64_t total_ns) noexcept nogil


cdef class RequestStats:
    cdef ApiTotals totals[API_SLOTS]
    cdef TimeParts parts[API_SLOTS]
    cdef ApiTotals from_followers
    cdef TimeParts parts_of_followers
    cdef readonly dict codes

    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t body_bytes,
                     Py_ssize_t bytes_out) noexcept nogil
    cdef void record_parts(self, int api_key, const RequestTimes* times) noexcept nogil
    cdef void record_follower(self, const RequestTimes* times, Py_ssize_t body_bytes) noexcept nogil
    cdef void record_answer(self, int api_key, bint by_follower, const AnswerTimes* times) noexcept nogil
    cdef int count_code(self, int api_key, int code) except -1
    cdef void count_error(self, int api_key) noexcept nogil


cdef class Histogram:
    cdef uint64_t sum_ns
    cdef uint64_t buckets[BUCKETS]

    cdef void record(self, uint64_t value_ns) noexcept nogil
