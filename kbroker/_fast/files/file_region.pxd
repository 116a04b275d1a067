from libc.stdint cimport int64_t


cdef class FileRegion:
    cdef readonly int fd
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly object owner
