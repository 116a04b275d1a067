cdef class ReadyQueue:
    cdef object loop
    cdef object calls
    cdef bint has_calls     # each request asks twice, and a deque answers by a call
    cdef bint serving
    cdef bint draining
    cdef bint scheduled

    cdef bint begin(self) noexcept
    cdef int end(self) except -1
    cpdef int drain(self) except -1
    cdef int _run(self) except -1
    cdef int _schedule(self) except -1
