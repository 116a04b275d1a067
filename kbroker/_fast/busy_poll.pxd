from libc.stdint cimport uint64_t


cdef class BusyPoll:
    cdef object loop
    cdef uint64_t limit_ns
    cdef readonly bint watching
    cdef readonly long needed
    cdef readonly long found
    cdef long streak
    cdef bint fresh
    cdef uint64_t served_ns
    cdef uint64_t quiet_ns
    cdef uint64_t looked_ns
    cdef uint64_t not_before_ns
    cdef uint64_t delayed_ns
    cdef int schedstat
    cdef bytes schedstat_path

    cpdef int arrived(self, uint64_t now) except -1
    cpdef void served(self) noexcept
    cdef int _begin(self, uint64_t now) except -1
    cdef int _end(self) except -1
    cdef bint _processor_is_short(self, uint64_t now) noexcept
