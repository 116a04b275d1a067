from libc.stdint cimport uint64_t


cdef enum:
    # The one budget: so long work may keep the loop before it yields.
    SLICE_NS = 2000000


cdef class Slices:
    cdef object loop
    cdef object waiting
    cdef bint scheduled
    cdef readonly uint64_t slice_ns
    cdef readonly uint64_t first_slice_ns
    cdef readonly Py_ssize_t count

    cdef object queue(self, object turn)
    cdef object own_loop(self)
    cdef int _schedule(self) except -1


cdef class Turn:
    cdef Pace pace
    cdef object call


cdef class Pace:
    cdef Slices slices
    cdef object resting
    cdef uint64_t began
    cdef uint64_t limit

    cpdef bint due(self) noexcept
    cdef void begin_slice(self) noexcept
