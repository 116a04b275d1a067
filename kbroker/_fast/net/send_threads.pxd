from libc.stdint cimport uint64_t
from posix.types cimport off_t

from kbroker._fast.files.file_region cimport FileRegion

cdef struct Pool


cdef class SendThreads:
    cdef Pool* pool
    cdef object loop
    cdef list owners
    cdef public size_t least_bytes
    cdef public object runner
    cdef readonly int limit
    cdef readonly int running
    cdef readonly int outstanding
    cdef readonly unsigned long long lent_count
    cdef void* last_user
    cdef uint64_t last_ns

    cdef bint take(self, object user, int out_fd, FileRegion region, off_t position, size_t size) except -1
    cdef bint _start(self) except -1
    cdef bint _add_thread(self) except -1
    cdef void _stop(self)
