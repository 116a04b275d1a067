from libc.stdint cimport uint64_t


cdef class Slices:
    cdef object loop
    cdef object waiting
    cdef bint scheduled
    cdef readonly uint64_t slice_ns
    cdef readonly uint64_t first_slice_ns
    cdef readonly Py_ssize_t count

    cdef object queue(self)


cdef class Pace:
    cdef Slices slices
    cdef object resting
    cdef uint64_t began
    cdef uint64_t limit

    cdef bint due(self) noexcept
