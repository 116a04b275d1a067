"""The short forward walk over batch headers that completes a sparse index lookup.

Reads of a header: base offset int64 at 0, batch length int32 at 8, magic at 16, last offset delta int32 at 23, max
timestamp int64 at 35; a header has 61 bytes.  A message of an older format (`stored_header`) has its own offset as last
offset, and its time at 18, or none; it is read once 26 bytes of it are there.  No byte outside of the given data is
read, even where lengths say so.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t

from kbroker._fast.log.index cimport load32, load64
from kbroker._fast.records.layout cimport MAGIC_POSITION, PARTITION_LEADER_EPOCH_POSITION

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
    `end` is the segment's size; the walk never leaves it.  ValueError where no header can be, or a batch does not end
    within the segment: it was cut short, or its length is damaged.

    With `least_offset`, the segment's base offset, the walk begins where an index entry leads to: at a batch that
    begins at or before the target, and whose followers ascend.  ValueError where that is not so, too.
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
            if seen.size > end - (position + at):
                raise ValueError(
                    f"the batch at position {position + at} is said to have {seen.size} bytes, "
                    f"{end - position - at} are left"
                )
            if is_led:
                first = load64(base + at)
                if (
                    base[at + MAGIC_POSITION] > 2 or first < least_offset or seen.last < first
                    or (at == 0 and first > target_offset)
                ):
                    raise ValueError(f"no batch that an index leads to at position {position + at}")
                least_offset = seen.last + 1
            if seen.last >= target_offset:
                return position + at, seen.size, load64(base + at), seen.last
            at += seen.size
        return position + at, 0, -1, -1
    finally:
        PyBuffer_Release(&view)


def walk_batches(data, int64_t position, int64_t end):
    """Walks the whole batches in `data`, which starts at `position` of a segment of `end` bytes.

    Returns (next position, last offset, largest max timestamp, last offset of that batch, leader epoch of the last);
    all but the first -1 when no header was whole, the epoch also for an old message.  A header counts once it is there
    and its batch ends by `end`.  ValueError where no header can be.
    """
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef Py_ssize_t at = 0
    cdef Seen seen
    cdef int sight
    cdef int64_t last = -1
    cdef int64_t max_timestamp = -1
    cdef int64_t offset_of_max = -1
    cdef int32_t epoch = -1
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
            epoch = -1
            if base[at + MAGIC_POSITION] >= 2:
                epoch = <int32_t> load32(base + at + PARTITION_LEADER_EPOCH_POSITION)
            if seen.timestamp > max_timestamp:
                max_timestamp = seen.timestamp
                offset_of_max = last
            at += seen.size
        return position + at, last, max_timestamp, offset_of_max, epoch
    finally:
        PyBuffer_Release(&view)


cdef class FollowUps:
    """Where batches begin, by their first offset, for those who read on: the last 32 that were noted."""

    def __cinit__(self):
        self.next = 0
        self.count = 0

    def find(self, int64_t offset):
        """The position of the batch that begins with `offset`; -1 when it was not noted."""
        return self.position_of(offset)

    def note(self, int64_t offset, int64_t position):
        self.add(offset, position)

    cdef int64_t position_of(self, int64_t offset) noexcept nogil:
        cdef const int64_t* offsets = self.offsets
        cdef const int64_t* positions = self.positions
        cdef unsigned int step, slot
        for step in range(1, self.count + 1):
            slot = (self.next + FOLLOW_UPS - step) & (FOLLOW_UPS - 1)
            if offsets[slot] == offset:
                return positions[slot]
        return -1

    cdef void add(self, int64_t offset, int64_t position) noexcept nogil:
        cdef int64_t* offsets = self.offsets
        cdef int64_t* positions = self.positions
        if self.position_of(offset) == position:
            return
        offsets[self.next] = offset
        positions[self.next] = position
        self.next = (self.next + 1) & (FOLLOW_UPS - 1)
        if self.count < FOLLOW_UPS:
            self.count = self.count + 1
