"""Copying bytes from file to file without the GIL, in one call for as much as is wanted.

A thread that copies in small pieces has to get the GIL back after each of them, which takes it milliseconds while the
event loop is busy.  The kernel copies by itself (copy_file_range) where it can, else through a buffer here.
"""

import os

from cpython.exc cimport PyErr_SetFromErrno, PyErr_SetFromErrnoWithFilenameObject
from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP, EXDEV, EPERM, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from kbroker._fast.files.file_write cimport write_all
from kbroker._fast.files.system_calls cimport system_calls

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<fcntl.h>" nogil:
    int open(const char* path, int flags, int mode)
    int O_RDONLY, O_WRONLY, O_CREAT, O_TRUNC, O_CLOEXEC

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/syscall.h>
    #include <unistd.h>
    static ssize_t kb_copy_file_range(int in, int64_t *in_at, int out, int64_t *out_at, size_t size) {
        return syscall(SYS_copy_file_range, in, in_at, out, out_at, size, 0);
    }
    """
    ssize_t kb_copy_file_range(int source, int64_t* source_at, int target, int64_t* target_at, size_t size) nogil


cdef enum:
    BUFFER_BYTES = 262144
    NO_MEMORY = -2
    FAILED = -1


cdef int64_t through_buffer(int source, int target, int64_t at, int64_t end) noexcept nogil:
    """How far it came; FAILED with errno, NO_MEMORY."""
    cdef char* buffer
    cdef ssize_t got
    if at >= end:
        return at
    buffer = <char*>malloc(BUFFER_BYTES)
    if buffer == NULL:
        return NO_MEMORY
    try:
        while at < end:
            got = system_calls.pread(source, buffer, <size_t>min(<int64_t>BUFFER_BYTES, end - at), at)
            if got < 0:
                if errno == EINTR:
                    continue
                return FAILED
            if got == 0:
                break
            if write_all(target, buffer, got, at):
                return FAILED
            at += got
        return at
    finally:
        free(buffer)


cdef int64_t copy(int source, int target, int64_t start, int64_t end) noexcept nogil:
    cdef int64_t source_at = start
    cdef int64_t target_at = start
    cdef ssize_t got
    while source_at < end:
        got = kb_copy_file_range(source, &source_at, target, &target_at, <size_t>min(end - source_at, <int64_t>1 << 30))
        if got < 0:
            if errno == EINTR:
                continue
            if errno in (EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EPERM):
                return through_buffer(source, target, source_at, end)
            return FAILED
        if got == 0:
            # The end, or a file system that says so of files it cannot copy.
            return through_buffer(source, target, source_at, end)
    return source_at


def copy_range(int source, int target, int64_t start, int64_t end):
    """Copies the bytes from `start` to `end` to the same place of another file.

    Returns where it came to: less than `end` where the source ends before.  OSError.
    """
    cdef int64_t came
    if start < 0 or end < start:
        raise ValueError(f"cannot copy from {start} to {end}")
    with nogil:
        came = copy(source, target, start, end)
    if came == NO_MEMORY:
        raise MemoryError
    if came < 0:
        PyErr_SetFromErrno(OSError)
    return came


def copy_file(source_path, target_path):
    """Makes `target_path` a copy of `source_path`, not durable.  Returns its size.  OSError with a path."""
    cdef bytes source_name = source_path.encode()
    cdef bytes target_name = target_path.encode()
    cdef const char* source_chars = source_name
    cdef const char* target_chars = target_name
    cdef int source, target
    cdef int64_t came = FAILED
    cdef int failure = 0
    with nogil:
        source = open(source_chars, O_RDONLY | O_CLOEXEC, 0)
    if source < 0:
        PyErr_SetFromErrnoWithFilenameObject(OSError, source_path)
    with nogil:
        target = open(target_chars, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        if target >= 0:
            came = copy(source, target, 0, <int64_t>1 << 40)
        failure = errno
        close(source)
        if target >= 0:
            close(target)
    if came == NO_MEMORY:
        raise MemoryError
    if came < 0:
        raise OSError(failure, os.strerror(failure), target_path)
    return came
