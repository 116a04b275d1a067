from libc.stdint cimport uint64_t
from posix.types cimport off_t

from kbroker._fast.files.file_region cimport FileRegion

cdef struct Pool

# What a thread does with what it was given beside a range of a file; how much of that it took.
ctypedef ssize_t (*Work)(void* what, int out_fd, int fd, off_t position, size_t size) noexcept nogil


cdef class SendThreads:
    cdef Pool* pool
    cdef object loop
    cdef list owners
    cdef public size_t least_bytes
    cdef public object runner
    cdef readonly int limit
    cdef readonly int running
    # The begun ones; fewer than `running` where a runner does the jobs.
    cdef readonly int threads
    cdef readonly int outstanding
    cdef readonly unsigned long long lent_count
    cdef void* last_user
    cdef uint64_t last_ns
    cdef size_t stack_bytes

    cdef bint take(self, object user, int out_fd, FileRegion region, off_t position, size_t size, Work call,
                   void* what) except -1
    cdef bint give(self, object user, int out_fd, FileRegion region, off_t position, size_t size, Work call,
                   void* what) except -1
    cdef void forget(self, object user) noexcept
    cdef bint _start(self) except -1
    cdef bint _add_thread(self) except -1
    cdef void _stop(self)
