"""Reading what is in the page cache, for C."""

from libc.stdint cimport int64_t

from kbroker._fast.files.system_calls cimport RWF_NOWAIT, iovec, system_calls


cdef inline bint read_cached(int fd, void* target, Py_ssize_t size, int64_t position) noexcept nogil:
    """Whether all of it was in memory, and is in `target` now; nothing waits for the disk."""
    cdef iovec vector
    vector.iov_base = target
    vector.iov_len = size
    return system_calls.preadv2(fd, &vector, 1, position, RWF_NOWAIT) == size
