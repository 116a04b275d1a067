"""Reading what is in the page cache, for C."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    """

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t preadv2(int fd, const iovec* vector, int count, int64_t position, int flags)
    int RWF_NOWAIT


cdef inline bint read_cached(int fd, void* target, Py_ssize_t size, int64_t position) noexcept nogil:
    """Whether all of it was in memory, and is in `target` now; nothing waits for the disk."""
    cdef iovec vector
    vector.iov_base = target
    vector.iov_len = size
    return preadv2(fd, &vector, 1, position, RWF_NOWAIT) == size
