from libc.stdint cimport uint64_t

from kbroker._fast.net.connection_interface cimport ConnectionInterface


cdef class BusyPoll:
    cdef object loop
    cdef uint64_t limit_ns
    cdef readonly bint watching
    cdef readonly long needed
    cdef readonly long found
    cdef readonly long seen
    cdef long streak
    cdef bint fresh
    cdef ConnectionInterface last
    cdef long in_a_row
    cdef uint64_t served_ns
    cdef uint64_t quiet_ns
    cdef uint64_t looked_ns
    cdef uint64_t not_before_ns
    cdef uint64_t delayed_ns
    cdef uint64_t slices
    cdef int schedstat
    cdef bytes schedstat_path

    cpdef int arrived(self, uint64_t now, ConnectionInterface who=*) except -1
    cpdef void served(self) noexcept
    cdef int _begin(self, uint64_t now) except -1
    cdef bint one_alone(self) noexcept
    cdef int _look(self, uint64_t now) except -1
    cdef int _end(self) except -1
    cdef bint _processor_is_short(self, uint64_t now) noexcept
