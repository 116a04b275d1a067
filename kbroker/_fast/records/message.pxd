"""Messages of the formats before record batches, read and written without an object for each.

    offset int64 | size int32 | crc uint32 (CRC-32 from magic on) | magic int8 | attributes int8 |
    timestamp int64 (magic 1 only) | key length int32 | key | value length int32 | value

A length below 0 is null.  Bytes behind the value are left out, as Kafka does.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kbroker._fast.base.cursor cimport (
    Cursor,
    cursor_fail,
    cursor_init,
    cursor_int32,
    cursor_int64,
    cursor_left,
    cursor_take,
    CURSOR_TRUNCATED,
    kb_load32,
    kb_load64,
)
from kbroker._fast.base.put cimport put8, put32, put64
from kbroker._fast.records.layout cimport (
    COMPRESSION_MASK,
    LOG_OVERHEAD_BYTES,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_CRC_START,
    MESSAGE_FIELDS_POSITION,
    MESSAGE_FIXED_BYTES,
    MESSAGE_MAGIC_POSITION,
    TIMESTAMP_TYPE_MASK,
)
from kbroker._fast.records.stored_header cimport crc32

cdef enum:
    MESSAGE_LEAST_SIZE = 14


cdef enum MessageFault:
    MESSAGE_OK = 0
    MESSAGE_END             # nothing is left, or a part of a message
    MESSAGE_SIZE            # below the least
    MESSAGE_MAGIC           # of no format before record batches
    MESSAGE_FIELDS          # key or value pass the message's end
    MESSAGE_CRC
    MESSAGE_COMPRESSED      # within a compressed one


cdef struct Message:
    const uint8_t* start
    Py_ssize_t size             # of all of it
    int64_t offset
    int8_t magic
    uint8_t attributes
    int64_t timestamp           # -1 with magic 0
    const uint8_t* key
    int32_t key_length
    const uint8_t* value
    int32_t value_length


cdef inline const uint8_t* take_field(Cursor* cursor, int32_t* length) noexcept nogil:
    length[0] = cursor_int32(cursor)
    return cursor_take(cursor, length[0]) if length[0] > 0 else cursor.position


cdef inline int next_message(Cursor* cursor, Message* out) noexcept nogil:
    """The message at the cursor; the cursor stays where there is none."""
    cdef Cursor fields
    cdef const uint8_t* data = cursor.position
    cdef int32_t size
    if cursor_left(cursor) < LOG_OVERHEAD_BYTES:
        return MESSAGE_END
    size = <int32_t> kb_load32(data + 8)
    if size < MESSAGE_LEAST_SIZE:
        return MESSAGE_SIZE
    if cursor_left(cursor) < <int64_t> size + LOG_OVERHEAD_BYTES:
        return MESSAGE_END
    out.start = data
    out.size = <Py_ssize_t> size + LOG_OVERHEAD_BYTES
    out.offset = <int64_t> kb_load64(data)
    out.magic = <int8_t> data[MESSAGE_MAGIC_POSITION]
    out.attributes = data[MESSAGE_ATTRIBUTES_POSITION]
    if out.magic < 0 or out.magic > 1:
        return MESSAGE_MAGIC
    cursor_init(&fields, data + MESSAGE_FIELDS_POSITION, out.size - MESSAGE_FIELDS_POSITION)
    out.timestamp = cursor_int64(&fields) if out.magic else -1
    out.key = take_field(&fields, &out.key_length)
    out.value = take_field(&fields, &out.value_length)
    if fields.fault:
        return MESSAGE_FIELDS
    cursor.position = data + out.size
    return MESSAGE_OK


cdef inline bint is_intact(const Message* self) noexcept nogil:
    return crc32(self.start + MESSAGE_CRC_START, self.size - MESSAGE_CRC_START) == kb_load32(
        self.start + MESSAGE_CRC_POSITION
    )


cdef inline int64_t message_size(int magic, int32_t key_length, int32_t value_length) noexcept nogil:
    """What `put_message` writes."""
    cdef int64_t size = MESSAGE_FIXED_BYTES + (8 if magic else 0)
    return size + (key_length if key_length > 0 else 0) + (value_length if value_length > 0 else 0)


cdef inline uint8_t* put_field(uint8_t* at, const uint8_t* data, int32_t length) noexcept nogil:
    at = put32(at, <uint32_t> (length if length >= 0 else -1))
    if length > 0:
        memcpy(at, data, <size_t> length)
        at += length
    return at


cdef inline uint8_t* put_message(
    uint8_t* at,
    int64_t offset,
    int magic,
    int attributes,
    int64_t timestamp,
    const uint8_t* key,
    int32_t key_length,
    const uint8_t* value,
    int32_t value_length,
) noexcept nogil:
    """One message, at `at`, where there is room; the place behind it."""
    cdef uint8_t* start = at
    cdef int64_t size = message_size(magic, key_length, value_length)
    at = put64(at, offset)
    at = put32(at, <uint32_t> (size - LOG_OVERHEAD_BYTES))
    at = put32(at, 0)
    at = put8(at, <uint8_t> magic)
    at = put8(at, <uint8_t> attributes)
    if magic:
        at = put64(at, timestamp)
    at = put_field(at, key, key_length)
    at = put_field(at, value, value_length)
    put32(start + MESSAGE_CRC_POSITION, crc32(start + MESSAGE_CRC_START, size - MESSAGE_CRC_START))
    return at
