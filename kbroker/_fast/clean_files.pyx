"""Both passes of a clean over stretches of a file, read and written here: the GIL is needed once in some megabytes.

A thread that takes the GIL for each buffer can lose its processor while it holds it, and the loop waits for both.
And after each buffer it lets others have its processor: one that woke up just after its share was used would otherwise
wait for the next tick of the clock, up to 4 ms.

A stretch ends at the end of the file, after about `most_bytes`, and at the first batch that `Compaction` leaves to its
caller, that does not fit the buffer or that cannot be read: the caller goes on from there by buffers of its own, which
meet the same again.  Damaged batches are Compaction's errors.
"""

import os

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.clean cimport Compaction
from kbroker._fast.clean_output cimport Bytes
from kbroker._fast.clean_passes cimport STOP_END, STOP_OVERFLOW, index_plain


cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, int64_t offset)
    ssize_t pwrite(int fd, const void* buffer, size_t size, int64_t offset)


cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef int64_t read_all(int fd, uint8_t* buffer, int64_t size, int64_t position) noexcept nogil:
    """Bytes read, fewer than asked for at the end of the file and where it cannot be read."""
    cdef int64_t filled = 0
    cdef ssize_t got
    while filled < size:
        got = pread(fd, buffer + filled, <size_t>(size - filled), position + filled)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            break
        filled += got
    return filled


cdef int write_all(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    """0, or the system's error number."""
    cdef int64_t written = 0
    cdef ssize_t done
    while written < size:
        done = pwrite(fd, data + written, <size_t>(size - written), position + written)
        if done < 0 and errno == EINTR:
            continue
        if done < 0:
            return errno
        if done == 0:
            return ENOSPC
        written += done
    return 0


cdef int check_stretch(const Py_buffer* view, int64_t position, int64_t end, int64_t most_bytes) except -1:
    if view.len == 0 or position < 0 or most_bytes <= 0:
        raise ValueError(f"a stretch from {position} to {end}, {most_bytes} bytes at most, with a buffer of {view.len}")
    return 0


def index_stretch(
    Compaction compaction not None, int fd, int64_t position, int64_t end, buffer, int64_t start_offset,
    int64_t most_bytes,
):
    """Pass one from `position` on: (where it came to, why as of `Compaction.index`)."""
    cdef Py_buffer view
    cdef int64_t filled = 0
    cdef int64_t last
    cdef int stop = STOP_END
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        check_stretch(&view, position, end, most_bytes)
        last = position + most_bytes if most_bytes < end - position else end
        with nogil:
            while stop == STOP_END and position < last:
                filled = read_all(fd, <uint8_t*>view.buf, min(<int64_t>view.len, end - position), position)
                compaction.state.position = 0
                stop = index_plain(compaction.state, <const uint8_t*>view.buf, filled, compaction.offsets, start_offset)
                position += compaction.state.position
                sched_yield()
                if compaction.state.position == 0:
                    break
    finally:
        PyBuffer_Release(&view)
    if stop > STOP_OVERFLOW:
        raise compaction.fail(stop, filled - compaction.state.position)
    return position, stop


def clean_stretch(
    Compaction compaction not None, int fd, int64_t position, int64_t end, buffer, int64_t most_bytes,
    int output_fd, int64_t output_position,
):
    """Pass two from `position` on, and what it keeps into `output_fd`, a buffer at a time: (where it came to, why as of
    `Compaction.clean`, where it came to in the output).

    The last of what it keeps waits in `compaction`.  OSError: a write failed.
    """
    cdef Py_buffer view
    cdef int64_t filled = 0
    cdef int64_t last
    cdef int stop = STOP_END
    cdef int failed = 0
    cdef Bytes* kept = &compaction.output.log
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        check_stretch(&view, position, end, most_bytes)
        last = position + most_bytes if most_bytes < end - position else end
        with nogil:
            while stop == STOP_END and position < last:
                filled = read_all(fd, <uint8_t*>view.buf, min(<int64_t>view.len, end - position), position)
                compaction.state.position = 0
                stop = compaction.clean_plain(<const uint8_t*>view.buf, filled)
                position += compaction.state.position
                sched_yield()
                if kept.size >= view.len:
                    failed = write_all(output_fd, kept.data, kept.size, output_position)
                    if failed:
                        break
                    output_position += kept.size
                    kept.size = 0
                if compaction.state.position == 0:
                    break
    finally:
        PyBuffer_Release(&view)
    if failed:
        raise OSError(failed, os.strerror(failed))
    if stop > STOP_OVERFLOW:
        raise compaction.fail(stop, filled - compaction.state.position)
    return position, stop, output_position
