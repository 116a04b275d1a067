cdef class Pending:
    cdef readonly object ctx
    cdef readonly bint done
    cdef object timer
    cdef object kept
    cdef bint encoded

    cpdef int begin(self, object ctx) except -1
    cdef int _end(self, object answer, bint encoded) except -1
    cdef int _send(self, object answer) except -1
    cpdef int lose(self) except -1
    cdef int release(self) except -1


cdef class DelayedFetch(Pending):
    cdef public tuple sources
    cdef public int wait_ms
    cdef public bint on_beat
    cdef object purgatory

    cpdef int wait_at(self, tuple sources) except -1
