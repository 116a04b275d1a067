"""The rows of a record batch, appended to columns one record at a time: C without the GIL, for `record_columns.pyx`.

A record is read field by field through a cursor that ends where the record does; lengths are judged before they are
used (see `record_walk.pxd` for the layout).  Offset deltas may have gaps, as compaction leaves them, but must grow.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.records.layout cimport TIMESTAMP_TYPE_MASK
from kbroker._fast.base.column_buffer cimport Binary, Room, binary_put, room_put32, room_put64, room_put_bit
from kbroker._fast.base.cursor cimport Cursor, cursor_left, cursor_take
from kbroker._fast.base.varint cimport short_varint, short_varlong


cdef enum:
    WANT_KEYS = 1
    WANT_VALUES = 2
    WANT_TIMESTAMPS = 4
    WANT_HEADERS = 8
    MICROSECONDS = 1000

cdef enum Took:
    TOOK_ALL        # every record of the batch
    TOOK_FULL       # the limits are reached; the record at the cursor comes next
    TOOK_STOP       # the record at the cursor is past the range
    FAULT_STRUCTURE
    FAULT_OFFSET
    FAULT_COUNT
    FAULT_TIMESTAMP
    FAULT_MEMORY


cdef struct Rows:
    Py_ssize_t count
    Py_ssize_t bytes          # of records, as they lie in the batch
    Room offset
    Room timestamp
    Room timestamp_type
    Binary key
    Binary value
    Room header_offsets       # of each row's list of headers
    Room header_valid
    Py_ssize_t headerless
    Binary header_key
    Binary header_value
    bint header_key_beyond_ascii


cdef struct Batch:
    Header header
    Cursor cursor
    int32_t left              # records not walked yet
    int64_t last              # offset of the record walked last, -1 before the first
    bint open


cdef inline bint put_headers(Rows* rows, Cursor* cursor, int32_t count, int* fault) noexcept nogil:
    cdef int32_t size
    cdef const uint8_t* start
    cdef Py_ssize_t at
    while count > 0:
        count -= 1
        size = short_varint(cursor)
        start = cursor_take(cursor, size)
        if start == NULL or cursor.fault:
            fault[0] = FAULT_STRUCTURE
            return False
        for at in range(size):
            if start[at] >= 0x80:
                rows.header_key_beyond_ascii = True
                break
        if not binary_put(&rows.header_key, start, size):
            fault[0] = FAULT_MEMORY
            return False
        size = short_varint(cursor)
        start = cursor_take(cursor, size) if size >= 0 else NULL
        if cursor.fault or size < -1:
            fault[0] = FAULT_STRUCTURE
            return False
        if not binary_put(&rows.header_value, start, size):
            fault[0] = FAULT_MEMORY
            return False
    return True


cdef inline bint put_header_list(Rows* rows, Cursor* cursor, int32_t count, int* fault) noexcept nogil:
    """A row's headers; null when it has none, as Spark's own connector gives it."""
    if rows.count == 0 and not room_put32(&rows.header_offsets, 0):
        fault[0] = FAULT_MEMORY
        return False
    if not put_headers(rows, cursor, count, fault):
        return False
    rows.headerless += count == 0
    if room_put_bit(&rows.header_valid, rows.count, count > 0) and room_put32(
        &rows.header_offsets, <int32_t>rows.header_key.count
    ):
        return True
    fault[0] = FAULT_MEMORY
    return False


cdef inline bint put_timestamp(Rows* rows, const Batch* batch, int64_t delta, int* fault) noexcept nogil:
    cdef int64_t timestamp
    cdef bint appended = (batch.header.attributes & TIMESTAMP_TYPE_MASK) != 0
    if appended:
        timestamp = batch.header.max_timestamp
    else:
        # Unsigned, because a hostile delta may wrap.
        timestamp = <int64_t>(<uint64_t>batch.header.base_timestamp + <uint64_t>delta)
    if timestamp > INT64_MAX // MICROSECONDS or timestamp < -(INT64_MAX // MICROSECONDS):
        fault[0] = FAULT_TIMESTAMP
        return False
    if room_put64(&rows.timestamp, timestamp * MICROSECONDS) and room_put32(&rows.timestamp_type, appended):
        return True
    fault[0] = FAULT_MEMORY
    return False


cdef inline int take_record(
    Rows* rows, Batch* batch, int64_t start, int64_t stop, int wants, Py_ssize_t max_rows, Py_ssize_t max_bytes
) noexcept nogil:
    """One record; the cursor stays before it unless the answer is TOOK_ALL."""
    cdef Cursor cursor = batch.cursor
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t length, offset_delta, key_size, value_size, headers
    cdef int64_t timestamp_delta, offset
    cdef int fault = FAULT_STRUCTURE
    length = short_varint(&cursor)
    if cursor.fault or length < 0 or length > cursor_left(&cursor):
        return FAULT_STRUCTURE
    if rows.count >= max_rows or (rows.count and rows.bytes + length > max_bytes):
        return TOOK_FULL
    batch.cursor.position = cursor.position + length
    cursor.end = batch.cursor.position
    cursor_take(&cursor, 1)
    timestamp_delta = short_varlong(&cursor)
    offset_delta = short_varint(&cursor)
    key_size = short_varint(&cursor)
    if key_size >= 0:
        key = cursor_take(&cursor, key_size)
    value_size = short_varint(&cursor)
    if value_size >= 0:
        value = cursor_take(&cursor, value_size)
    headers = short_varint(&cursor)
    if cursor.fault or key_size < -1 or value_size < -1 or headers < 0 or headers > cursor_left(&cursor):
        return FAULT_STRUCTURE
    offset = batch.header.base_offset + offset_delta
    if offset_delta < 0 or offset_delta > batch.header.last_offset_delta or offset <= batch.last:
        return FAULT_OFFSET
    batch.last = offset
    if offset >= stop:
        return TOOK_STOP
    if offset < start:
        return TOOK_ALL
    if wants & WANT_HEADERS:
        if not put_header_list(rows, &cursor, headers, &fault):
            return fault
        if cursor.position != cursor.end:
            return FAULT_STRUCTURE
    elif headers == 0 and cursor.position != cursor.end:
        return FAULT_STRUCTURE
    if wants & WANT_TIMESTAMPS and not put_timestamp(rows, batch, timestamp_delta, &fault):
        return fault
    if not room_put64(&rows.offset, offset):
        return FAULT_MEMORY
    if wants & WANT_KEYS and not binary_put(&rows.key, key, key_size):
        return FAULT_MEMORY
    if wants & WANT_VALUES and not binary_put(&rows.value, value, value_size):
        return FAULT_MEMORY
    rows.count += 1
    rows.bytes += length
    return TOOK_ALL


cdef inline int take_records(
    Rows* rows, Batch* batch, int64_t start, int64_t stop, int wants, Py_ssize_t max_rows, Py_ssize_t max_bytes
) noexcept nogil:
    cdef int took
    while batch.left > 0:
        took = take_record(rows, batch, start, stop, wants, max_rows, max_bytes)
        if took != TOOK_ALL:
            return took
        batch.left -= 1
    if batch.cursor.position != batch.cursor.end:
        return FAULT_COUNT
    return TOOK_ALL
