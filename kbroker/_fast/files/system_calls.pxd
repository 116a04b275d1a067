"""The system's calls by which C reads and writes files of logs, in one place, where a test can put a bad disk.

Everything else goes by `storage/files/filesystem.py`.
"""

from libc.stdint cimport int64_t
from posix.types cimport off_t

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
    int RWF_NOWAIT

cdef struct SystemCalls:
    ssize_t (*pread)(int fd, void* buffer, size_t size, int64_t offset) noexcept nogil
    ssize_t (*preadv2)(int fd, const iovec* vector, int count, int64_t offset, int flags) noexcept nogil
    ssize_t (*pwrite)(int fd, const void* buffer, size_t size, int64_t offset) noexcept nogil
    ssize_t (*pwritev)(int fd, const iovec* vector, int count, int64_t offset) noexcept nogil
    # From the page cache to nowhere (`page_cache`).
    ssize_t (*sendfile)(int out_fd, int in_fd, off_t* offset, size_t count) noexcept nogil

cdef SystemCalls system_calls
