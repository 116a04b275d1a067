"""The short forward walk over batch headers that completes a sparse index lookup.

Reads of a header: base offset int64 at 0, batch length int32 at 8, magic at 16, last offset delta int32 at 23, max
timestamp int64 at 35; a header has 61 bytes.  A message of an older format (`stored_header`) ends at its offset and
has its time at 18, or none; it counts once 26 bytes of it are there.  No byte outside of the given data is read,
whatever the lengths say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t

from kbroker._fast.index cimport load32, load64
from kbroker._fast.stored_header cimport LEAST_BATCH_BYTES, V1_TIMESTAMP_POSITION

cdef enum:
    HEADER_BYTES = 61
    MAGIC_POSITION = 16
    LENGTH_LEFT_OUT = 12


cdef struct Seen:
    int64_t size
    int64_t last
    int64_t timestamp


cdef enum Sight:
    SEEN = 1
    CUT_OFF = 0           # not enough of the header is there
    NONE = -1             # no header can be here: `size`


cdef inline int see(const uint8_t* header, Py_ssize_t left, Seen* out) noexcept nogil:
    cdef bint is_old
    if left < LEAST_BATCH_BYTES:
        return CUT_OFF
    is_old = header[MAGIC_POSITION] < 2
    out.size = <int64_t><int32_t>load32(header + 8) + LENGTH_LEFT_OUT
    if out.size < (LEAST_BATCH_BYTES if is_old else HEADER_BYTES):
        return NONE
    if is_old:
        out.last = load64(header)
        out.timestamp = load64(header + V1_TIMESTAMP_POSITION) if header[MAGIC_POSITION] else -1
        return SEEN
    if left < HEADER_BYTES:
        return CUT_OFF
    out.last = load64(header) + <int32_t>load32(header + 23)
    out.timestamp = load64(header + 35)
    return SEEN


cdef object no_batch(int64_t position, int64_t size):
    return ValueError(f"no batch at position {position}: length {size}")


def max_timestamp_of(header):
    """The max timestamp of the batch that begins with these bytes, -1 for one without."""
    cdef Py_buffer view
    cdef Seen seen
    PyObject_GetBuffer(header, &view, PyBUF_SIMPLE)
    try:
        return seen.timestamp if see(<const uint8_t*>view.buf, view.len, &seen) == SEEN else -1
    finally:
        PyBuffer_Release(&view)


def find_batch(data, int64_t target_offset, int64_t position, int64_t end, int64_t least_offset=INT64_MIN):
    """Walks batch headers in `data`, which starts at `position` of a segment, to the first that reaches an offset.

    Returns (position, size, base_offset, last_offset) of that batch, or (position, 0, -1, -1): where to go on reading.
    `end` is the segment's size; the walk never leaves it.

    With `least_offset`, the segment's base offset, the walk begins where an index entry leads to: at a batch that
    begins at or before the target, and whose followers ascend.  ValueError where that is not so, or no header can be.
    """
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef Py_ssize_t at = 0
    cdef Seen seen
    cdef int sight
    cdef int64_t first
    cdef bint is_led = least_offset != INT64_MIN
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        while position + at < end:
            sight = see(base + at, view.len - at, &seen)
            if sight == NONE:
                raise no_batch(position + at, seen.size)
            if sight == CUT_OFF:
                break
            if is_led:
                first = load64(base + at)
                if (
                    base[at + MAGIC_POSITION] > 2 or first < least_offset or seen.last < first
                    or (at == 0 and first > target_offset)
                    or seen.size > end - (position + at)
                ):
                    raise ValueError(f"no batch that an index leads to at position {position + at}")
                least_offset = seen.last + 1
            if seen.last >= target_offset:
                return position + at, seen.size, load64(base + at), seen.last
            if seen.size > end - (position + at):
                break
            at += seen.size
        return position + at, 0, -1, -1
    finally:
        PyBuffer_Release(&view)


def walk_batches(data, int64_t position, int64_t end):
    """Walks the whole batches in `data`, which starts at `position` of a segment of `end` bytes.

    Returns (next position, last offset, largest max timestamp, last offset of that batch); the last three -1 when no
    header was whole.  A header counts once it is there and its batch ends by `end`.  ValueError where no header can be.
    """
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef Py_ssize_t at = 0
    cdef Seen seen
    cdef int sight
    cdef int64_t last = -1
    cdef int64_t max_timestamp = -1
    cdef int64_t offset_of_max = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        while position + at < end:
            sight = see(base + at, view.len - at, &seen)
            if sight == NONE:
                raise no_batch(position + at, seen.size)
            if sight == CUT_OFF:
                break
            if seen.size > end - (position + at):
                break
            last = seen.last
            if seen.timestamp > max_timestamp:
                max_timestamp = seen.timestamp
                offset_of_max = last
            at += seen.size
        return position + at, last, max_timestamp, offset_of_max
    finally:
        PyBuffer_Release(&view)
