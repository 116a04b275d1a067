"""Writing all of something to its place in a file, for C."""

from libc.errno cimport EINTR, ENOSPC, errno
from libc.stdint cimport int64_t

from kbroker._fast.files.system_calls cimport system_calls

cdef extern from *:
    """
    #include <errno.h>
    static inline int kb_fail(int number) { errno = number; return number; }
    """
    int kb_fail(int number) noexcept nogil


cdef inline int write_all(int fd, const char* data, int64_t size, int64_t position) noexcept nogil:
    """0, or the system's error number, which errno has too."""
    cdef int64_t written = 0
    cdef ssize_t done
    while written < size:
        done = system_calls.pwrite(fd, data + written, <size_t>(size - written), position + written)
        if done < 0 and errno == EINTR:
            continue
        if done < 0:
            return errno
        if done == 0:
            return kb_fail(ENOSPC)
        written += done
    return 0
