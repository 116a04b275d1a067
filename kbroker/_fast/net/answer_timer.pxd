from libc.stdint cimport uint64_t

from kbroker._fast.base.counters cimport RequestStats

cdef struct Leaving:
    uint64_t ready_at
    uint64_t total_ns       # from the request to then
    uint64_t looked_at
    Py_ssize_t end          # how many parts were queued with its last one
    int api_key
    bint by_follower


cdef class AnswerTimer:
    cdef RequestStats stats
    cdef Leaving* leaving
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Py_ssize_t looked

    cdef int begin(self, int api_key, bint by_follower, uint64_t total_ns, uint64_t now, Py_ssize_t end) except -1
    cdef void look(self, uint64_t now) noexcept
    cdef void end(self, bint is_all, Py_ssize_t head) noexcept
    cdef void forget(self) noexcept
