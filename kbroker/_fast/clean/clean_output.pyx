"""What a clean writes: the bytes of a segment's log until they are taken, and its index files.

Index entries are made as an append makes them: one at the first batch after more than `interval` bytes since the last,
pointing at that batch by its last offset, with the largest timestamp so far beside it; the final time entry at the end.
An index that has its full size gets no more entries, which only makes searches in the rest longer.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from kbroker._fast.base.big_endian cimport kb_store32, kb_store64


cdef enum:
    LEAST_BYTES = 4096
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12


cdef bint reserve_bytes(Bytes* self, int64_t more) noexcept nogil:
    """Room for `more` bytes after those that are there."""
    cdef int64_t capacity = self.capacity
    cdef void* grown
    if self.size + more <= capacity:
        return True
    capacity = max(capacity + capacity // 2, self.size + more, <int64_t>LEAST_BYTES)
    grown = realloc(self.data, <size_t>capacity)
    if grown == NULL:
        return False
    self.data = <uint8_t*>grown
    self.capacity = capacity
    return True


cdef void free_bytes(Bytes* self) noexcept nogil:
    free(self.data)
    self.data = NULL
    self.size = 0
    self.capacity = 0


cdef void free_output(Output* self) noexcept nogil:
    free_bytes(&self.log)
    free_bytes(&self.offsets)
    free_bytes(&self.times)


cdef void begin_segment(Output* self, int64_t base_offset, int64_t interval, int64_t max_index_bytes) noexcept nogil:
    self.log.size = 0
    self.offsets.size = 0
    self.times.size = 0
    self.base_offset = base_offset
    self.position = 0
    self.interval = interval
    self.max_index_bytes = max_index_bytes
    self.since_index = 0
    self.max_timestamp = -1
    self.offset_of_max_timestamp = base_offset
    self.indexed_timestamp = -1
    self.last_offset = -1
    self.batches = 0


cdef bint _add_time(Output* self) noexcept nogil:
    cdef uint8_t* at
    if self.max_timestamp <= self.indexed_timestamp or self.max_timestamp < 0:
        return True
    if not reserve_bytes(&self.times, TIME_ENTRY_BYTES):
        return False
    at = self.times.data + self.times.size
    kb_store64(at, self.max_timestamp)
    kb_store32(at + 8, <uint32_t>(self.offset_of_max_timestamp - self.base_offset))
    self.times.size += TIME_ENTRY_BYTES
    self.indexed_timestamp = self.max_timestamp
    return True


cdef bint _add_entries(Output* self, int64_t last_offset) noexcept nogil:
    cdef uint8_t* at
    # One time entry has to fit in the end.
    if (
        self.offsets.size + OFFSET_ENTRY_BYTES > self.max_index_bytes
        or self.times.size + 2 * TIME_ENTRY_BYTES > self.max_index_bytes
    ):
        return True
    if not reserve_bytes(&self.offsets, OFFSET_ENTRY_BYTES):
        return False
    at = self.offsets.data + self.offsets.size
    kb_store32(at, <uint32_t>(last_offset - self.base_offset))
    kb_store32(at + 4, <uint32_t>self.position)
    self.offsets.size += OFFSET_ENTRY_BYTES
    return _add_time(self)


cdef bint note_batch(Output* self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept nogil:
    """Accounts for a batch at the end of the log bytes; False without memory."""
    if max_timestamp > self.max_timestamp:
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = last_offset
    if self.since_index > self.interval:
        if not _add_entries(self, last_offset):
            return False
        self.since_index = 0
    self.since_index += size
    self.position += size
    self.last_offset = last_offset
    self.batches += 1
    return True


cdef bint end_segment(Output* self) noexcept nogil:
    return _add_time(self)
