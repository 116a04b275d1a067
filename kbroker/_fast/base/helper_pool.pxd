from libc.stdint cimport uint64_t

cdef enum:
    # The loop's own thread is the first of them.
    MOST_WORKERS = 8


ctypedef void (*Piece)(void* item, int worker) noexcept nogil

cdef struct SharedWork


cdef class HelperPool:
    cdef SharedWork* shared
    cdef public object draw
    cdef readonly int limit
    cdef readonly int running

    cdef int share(self, Piece piece, void** items, int count, int helpers) except -1
    cdef int _share_as_drawn(self, Piece piece, void** items, int count) except -1
    cdef bint _ready(self, int helpers) except -1
    cdef bint _add_thread(self) except -1
    cdef void _stop(self)
