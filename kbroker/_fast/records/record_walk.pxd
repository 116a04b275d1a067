"""The walk over the records of one v2 batch: checks everything a reader will rely upon and stores nothing.

    Record => length varint, attributes int8, timestamp_delta varlong, offset_delta varint,
              key_length varint, key, value_length varint, value, headers_count varint, [Header]
    Header => key_length varint, key, value_length varint, value

A length of -1 is null (but never for a header's key).  Offset deltas count 0, 1, 2 … without a gap: the offsets that
the leader assigns are the batch's base plus the delta, so a gap would leave two records at one offset or a hole.
`Walk` collects the values that a validator needs, so that it need not read the records again.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from kbroker._fast.base.cursor cimport Cursor, cursor_take
from kbroker._fast.base.varint cimport short_varint, short_varlong


cdef enum WalkFault:
    WALK_OK = 0
    WALK_PREMATURE_END        # fewer records than declared
    WALK_LEFT_OVER            # bytes after the last declared record
    WALK_RECORD_OVERRUN       # a record longer than what is left: detail = length, other = left
    WALK_RECORD_SIZE          # fields end elsewhere than the length says: detail = length, other = read
    WALK_STRUCTURE            # a field passes the end of its record, or a varint is too long
    WALK_OFFSET_DELTA         # detail = found, other = expected
    WALK_NEGATIVE_LENGTH      # a key or value length below -1: detail = length
    WALK_HEADERS_NEGATIVE     # detail = count
    WALK_HEADERS_TOO_MANY     # detail = count
    WALK_HEADER_KEY_NEGATIVE  # detail = length


cdef struct Walk:
    int64_t base_timestamp
    int64_t min_timestamp     # of records that have one; INT64_MAX when none has
    int64_t max_timestamp     # -1 when no record has a later one
    int32_t index             # records walked so far
    int32_t max_index         # the first record with max_timestamp
    int32_t keyless_count
    int64_t timestamp         # of the last record walked, as are the next two
    int32_t key_length
    int32_t value_length
    int32_t fault             # WalkFault
    int64_t detail
    int64_t other


cdef inline void walk_init(Walk* self, int64_t base_timestamp) noexcept nogil:
    self.base_timestamp = base_timestamp
    self.min_timestamp = INT64_MAX
    self.max_timestamp = -1
    self.index = 0
    self.max_index = 0
    self.keyless_count = 0
    self.timestamp = -1
    self.key_length = -1
    self.value_length = -1
    self.fault = WALK_OK
    self.detail = 0
    self.other = 0


cdef inline bint walk_fail(Walk* self, int fault, int64_t detail, int64_t other) noexcept nogil:
    self.fault = fault
    self.detail = detail
    self.other = other
    return False


cdef inline void walk_note(
    Walk* self, int64_t timestamp_delta, int32_t key_length, int32_t value_length
) noexcept nogil:
    """Takes note of a record whose fields are in order."""
    # Unsigned, because a hostile delta may wrap; Java's sum wraps as well.
    cdef int64_t timestamp = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>timestamp_delta)
    self.timestamp = timestamp
    self.key_length = key_length
    self.value_length = value_length
    self.keyless_count += key_length < 0
    if timestamp > self.max_timestamp:
        self.max_timestamp = timestamp
        self.max_index = self.index
    if timestamp < self.min_timestamp and timestamp != -1:
        self.min_timestamp = timestamp


cdef inline bint walk_headers(Cursor* cursor, Walk* self, int32_t count) noexcept nogil:
    cdef int32_t length
    while count > 0:
        count -= 1
        length = short_varint(cursor)
        if length < 0:
            return walk_fail(self, WALK_HEADER_KEY_NEGATIVE, length, 0)
        cursor_take(cursor, length)
        length = short_varint(cursor)
        if length < -1:
            return walk_fail(self, WALK_NEGATIVE_LENGTH, length, 0)
        if length > 0:
            cursor_take(cursor, length)
        if cursor.fault:
            return walk_fail(self, WALK_STRUCTURE, 0, 0)
    return True


cdef inline bint walk_fields(Cursor* cursor, Walk* self) noexcept nogil:
    """The fields of one record, `cursor` ending where the record does.  Lengths are judged before they are used;
    a fault of the cursor turns every later read into 0, so it is looked at once."""
    cdef int64_t timestamp_delta
    cdef int32_t offset_delta, key_length, value_length, headers_count
    cursor_take(cursor, 1)
    timestamp_delta = short_varlong(cursor)
    offset_delta = short_varint(cursor)
    key_length = short_varint(cursor)
    if key_length > 0:
        cursor_take(cursor, key_length)
    value_length = short_varint(cursor)
    if value_length > 0:
        cursor_take(cursor, value_length)
    headers_count = short_varint(cursor)
    if cursor.fault:
        return walk_fail(self, WALK_STRUCTURE, 0, 0)
    if key_length < -1 or value_length < -1:
        return walk_fail(self, WALK_NEGATIVE_LENGTH, min(key_length, value_length), 0)
    if offset_delta != self.index:
        return walk_fail(self, WALK_OFFSET_DELTA, offset_delta, self.index)
    if headers_count != 0:
        if headers_count < 0:
            return walk_fail(self, WALK_HEADERS_NEGATIVE, headers_count, 0)
        if headers_count > cursor.end - cursor.position:
            return walk_fail(self, WALK_HEADERS_TOO_MANY, headers_count, 0)
        if not walk_headers(cursor, self, headers_count):
            return False
    walk_note(self, timestamp_delta, key_length, value_length)
    return True


cdef inline bint walk_record(Cursor* cursor, Walk* self) noexcept nogil:
    """One record; False with the fault set when it is not well-formed."""
    cdef const uint8_t* start
    cdef const uint8_t* end = cursor.end
    cdef int32_t length = short_varint(cursor)
    if cursor.fault:
        return walk_fail(self, WALK_PREMATURE_END, 0, 0)
    start = cursor.position
    if length > end - start:
        return walk_fail(self, WALK_RECORD_OVERRUN, length, end - start)
    if length < 0:
        return walk_fail(self, WALK_RECORD_SIZE, length, 0)
    cursor.end = start + length
    if not walk_fields(cursor, self):
        return False
    if cursor.position != cursor.end:
        return walk_fail(self, WALK_RECORD_SIZE, length, cursor.position - start)
    cursor.end = end
    self.index += 1
    return True


cdef inline bint walk_records(Cursor* cursor, Walk* self, int32_t count) noexcept nogil:
    """Exactly `count` records and nothing after them."""
    while self.index < count:
        if not walk_record(cursor, self):
            return False
    if cursor.position != cursor.end:
        return walk_fail(self, WALK_LEFT_OVER, cursor.end - cursor.position, 0)
    return True
