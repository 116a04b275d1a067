"""Records as compaction sees them: where each lies, its key, its offset and whether it is a tombstone.

One pass over a payload fills `Entry` values.  The two passes of compaction then hash and look them up in groups, so
that several digests are computed at once and the map's memory is prefetched.  Offset deltas ascend, possibly with gaps:
an earlier compaction may have removed records.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_left, cursor_take
from kbroker._fast.base.varint cimport short_varint, short_varlong


cdef enum:
    LEAST_RECORD_BYTES = 7

cdef enum EntryFault:
    ENTRIES_OK = 0
    ENTRIES_NO_MEMORY
    ENTRIES_COUNT          # more records than the payload can hold
    ENTRIES_STRUCTURE      # a field passes the end of its record
    ENTRIES_ORDER          # an offset delta that does not ascend or passes the batch's last
    ENTRIES_LEFT_OVER      # bytes after the last record


cdef struct Entry:
    int64_t offset
    int64_t timestamp_delta
    const uint8_t* start      # of the record, its length included
    const uint8_t* end
    const uint8_t* fields     # what follows the timestamp delta
    const uint8_t* key        # NULL: none
    int32_t key_length
    bint has_value
    bint kept
    bint past_map             # later than what the map knows: it stays in any case


cdef struct Entries:
    Entry* items
    Py_ssize_t count
    Py_ssize_t capacity


cdef inline bint reserve_entries(Entries* self, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity = self.capacity
    cdef void* grown
    if self.count + more <= capacity:
        return True
    capacity = max(capacity * 2, self.count + more)
    grown = realloc(self.items, <size_t>capacity * sizeof(Entry))
    if grown == NULL:
        return False
    self.items = <Entry*>grown
    self.capacity = capacity
    return True


cdef inline int take_entry(Cursor* cursor, Entry* entry, int64_t base_offset, int32_t* last_delta) noexcept nogil:
    """One record; `last_delta` is the delta of the record before it."""
    cdef const uint8_t* end
    cdef int32_t length, offset_delta, value_length
    entry.start = cursor.position
    length = short_varint(cursor)
    if cursor.fault or length < 0 or length > cursor_left(cursor):
        return ENTRIES_STRUCTURE
    end = cursor.position + length
    cursor_take(cursor, 1)
    entry.timestamp_delta = short_varlong(cursor)
    entry.fields = cursor.position
    offset_delta = short_varint(cursor)
    entry.key_length = short_varint(cursor)
    entry.key = NULL
    if entry.key_length >= 0:
        entry.key = cursor_take(cursor, entry.key_length)
    value_length = short_varint(cursor)
    if cursor.fault or cursor.position > end or value_length > end - cursor.position:
        return ENTRIES_STRUCTURE
    if offset_delta <= last_delta[0]:
        return ENTRIES_ORDER
    last_delta[0] = offset_delta
    entry.offset = base_offset + offset_delta
    entry.has_value = value_length >= 0
    entry.kept = True
    entry.past_map = False
    entry.end = end
    # Headers are not looked at: the record's length says where they end.
    cursor.position = end
    return ENTRIES_OK


cdef inline int take_entries(
    Entries* self,
    const uint8_t* payload,
    Py_ssize_t size,
    int32_t count,
    int64_t base_offset,
    int32_t last_offset_delta,
) noexcept nogil:
    """Adds the records of one payload; on a fault some may have been added."""
    cdef Cursor cursor
    cdef int32_t last_delta = -1
    cdef int fault
    if count < 0 or count > size // LEAST_RECORD_BYTES:
        return ENTRIES_COUNT
    if not reserve_entries(self, count):
        return ENTRIES_NO_MEMORY
    cursor_init(&cursor, payload, size)
    for _ in range(count):
        fault = take_entry(&cursor, &self.items[self.count], base_offset, &last_delta)
        if fault:
            return fault
        self.count += 1
    if cursor_left(&cursor):
        return ENTRIES_LEFT_OVER
    if last_delta > last_offset_delta:
        return ENTRIES_ORDER
    return ENTRIES_OK
