"""The short forward walk over batch headers that completes a sparse index lookup.

Reads of a header: base offset int64 at 0, batch length int32 at 8, last offset delta int32 at 23, max timestamp
int64 at 35; a header has 61 bytes.  No byte outside of the given data is read, whatever the lengths say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.index cimport load32, load64


def find_batch(data, int64_t target_offset, int64_t position, int64_t end):
    """Walks batch headers in `data`, which starts at `position` of a segment, to the first that reaches an offset.

    Returns (position, size, base_offset, last_offset) of that batch, or (position, 0, -1, -1): where to go on reading.
    A header that cannot be one (a length below a header's own) ends the walk with ValueError.
    `end` is the segment's size; the walk never leaves it.
    """
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef Py_ssize_t at = 0
    cdef int64_t size, last
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        while at + 61 <= view.len and position + at < end:
            size = <int64_t><int32_t>load32(base + at + 8) + 12
            if size < 61:
                raise ValueError(f"no batch at position {position + at}: length {size}")
            last = load64(base + at) + <int32_t>load32(base + at + 23)
            if last >= target_offset:
                return position + at, size, load64(base + at), last
            if size > end - (position + at):
                break
            at += size
        return position + at, 0, -1, -1
    finally:
        PyBuffer_Release(&view)


def walk_batches(data, int64_t position, int64_t end):
    """Walks the whole batches in `data`, which starts at `position` of a segment of `end` bytes.

    Returns (next position, last offset, largest max timestamp, last offset of that batch); the last three -1 when no
    header was whole.  A header counts once 61 bytes of it are there and its batch ends by `end`.  ValueError where no
    header can be.
    """
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef Py_ssize_t at = 0
    cdef int64_t size, timestamp
    cdef int64_t last = -1
    cdef int64_t max_timestamp = -1
    cdef int64_t offset_of_max = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        while at + 61 <= view.len and position + at < end:
            size = <int64_t><int32_t>load32(base + at + 8) + 12
            if size < 61:
                raise ValueError(f"no batch at position {position + at}: length {size}")
            if size > end - (position + at):
                break
            last = load64(base + at) + <int32_t>load32(base + at + 23)
            timestamp = load64(base + at + 35)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                offset_of_max = last
            at += size
        return position + at, last, max_timestamp, offset_of_max
    finally:
        PyBuffer_Release(&view)
