"""Both passes of a clean over ranges of a file.  Reads and writes are made here, so the GIL is taken once in some
megabytes.

A thread that takes the GIL for each buffer can be preempted while it holds the GIL; the event loop then waits for the
GIL until the thread is scheduled again.  The thread also yields its processor after each buffer: another thread that
wakes up on that processor would otherwise wait for the next scheduler tick, up to 4 ms.

A range ends at the end of the file, after about `most_bytes`, or at the first batch that `Compaction` leaves to its
caller, that does not fit the buffer or that cannot be read.  The caller goes on from there with buffers of its own, and
meets that batch, or the read error, again.  Damaged batches are Compaction's errors.
"""

import os

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.clean.clean cimport Compaction
from kbroker._fast.clean.clean_output cimport Bytes
from kbroker._fast.clean.clean_passes cimport STOP_END, STOP_OVERFLOW, index_plain
from kbroker._fast.files.file_write cimport write_all
from kbroker._fast.files.system_calls cimport system_calls


cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef int64_t read_all(int fd, uint8_t* buffer, int64_t size, int64_t position) noexcept nogil:
    """Bytes read, fewer than asked for at the end of the file and where it cannot be read."""
    cdef int64_t filled = 0
    cdef ssize_t got
    while filled < size:
        got = system_calls.pread(fd, buffer + filled, <size_t>(size - filled), position + filled)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            break
        filled += got
    return filled


cdef struct FileRange:
    int fd
    int64_t position      # how far everything was dealt with
    int64_t end           # of the file
    int64_t most_bytes
    bint indexes          # pass one, from `start_offset` on; else pass two, into the output
    int64_t start_offset
    int output_fd
    int64_t output_position


cdef int run(Compaction compaction, FileRange* self, buffer) except -1:
    """Why it ended; its errors are Compaction's, ValueError, and OSError when a write failed."""
    cdef Py_buffer view
    cdef int64_t filled = 0
    cdef int64_t last
    cdef int stop = STOP_END
    cdef int failed = 0
    cdef Bytes* kept = &compaction.output.log
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if view.len == 0 or self.position < 0 or self.most_bytes <= 0:
            raise ValueError(
                f"a range from {self.position} to {self.end}, {self.most_bytes} bytes at most, with a buffer of "
                f"{view.len}"
            )
        last = self.position + self.most_bytes if self.most_bytes < self.end - self.position else self.end
        with nogil:
            while stop == STOP_END and self.position < last:
                filled = read_all(
                    self.fd, <uint8_t*>view.buf, min(<int64_t>view.len, self.end - self.position), self.position
                )
                compaction.state.position = 0
                if self.indexes:
                    stop = index_plain(
                        compaction.state, <const uint8_t*>view.buf, filled, compaction.offsets, self.start_offset
                    )
                else:
                    stop = compaction.clean_plain(<const uint8_t*>view.buf, filled)
                self.position += compaction.state.position
                sched_yield()
                if not self.indexes and kept.size >= view.len:
                    failed = write_all(self.output_fd, <const char*>kept.data, kept.size, self.output_position)
                    if failed:
                        break
                    self.output_position += kept.size
                    kept.size = 0
                if compaction.state.position == 0:
                    break
    finally:
        PyBuffer_Release(&view)
    if failed:
        raise OSError(failed, os.strerror(failed))
    if stop > STOP_OVERFLOW:
        raise compaction.fail(stop, filled - compaction.state.position)
    return stop


def index_range(
    Compaction compaction not None, int fd, int64_t position, int64_t end, buffer, int64_t start_offset,
    int64_t most_bytes,
):
    """Pass one from `position` on: (the position where it stopped, the reason as `Compaction.index` gives it)."""
    cdef FileRange file_range = FileRange(fd, position, end, most_bytes, True, start_offset, -1, 0)
    cdef int stop = run(compaction, &file_range, buffer)
    return file_range.position, stop


def clean_range(
    Compaction compaction not None, int fd, int64_t position, int64_t end, buffer, int64_t most_bytes,
    int output_fd, int64_t output_position,
):
    """Pass two from `position` on; the batches that stay are written to `output_fd`, a buffer at a time.  Returns (the
    position where it stopped, the reason as `Compaction.clean` gives it, the end of the output).

    The last of what it keeps waits in `compaction`.  OSError: a write failed.
    """
    cdef FileRange file_range = FileRange(fd, position, end, most_bytes, False, 0, output_fd, output_position)
    cdef int stop = run(compaction, &file_range, buffer)
    return file_range.position, stop, file_range.output_position
