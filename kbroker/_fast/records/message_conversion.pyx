"""Messages of the formats before record batches made of records, and records of them.

Everything here is uncompressed.  Each conversion walks its input twice, first for the size of the result, then to write
it, and needs the GIL only between the walks, to allocate the result.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.base.cursor cimport CURSOR_TRUNCATED, Cursor, cursor_init, cursor_left, cursor_take
from kbroker._fast.base.varint cimport put_varlong, short_varint, short_varlong, varlong_size
from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.records.message cimport (
    MESSAGE_OK,
    TIMESTAMP_TYPE_MASK,
    Message,
    message_size,
    next_message,
    put_message,
)

from kbroker._fast.records.batch_info import InvalidRecordsError

KEEP_OFFSETS = -1
NO_APPEND_TIME = -1


cdef inline int64_t record_size(const Message* message, int64_t timestamp_delta, int32_t offset_delta) noexcept nogil:
    """Of a record's body: attributes, and no headers."""
    cdef int64_t size = 2 + varlong_size(timestamp_delta) + varlong_size(offset_delta)
    size += varlong_size(max(message.key_length, -1)) + max(message.key_length, 0)
    return size + varlong_size(max(message.value_length, -1)) + max(message.value_length, 0)


cdef inline uint8_t* put_varint_field(uint8_t* at, const uint8_t* data, int32_t length) noexcept nogil:
    at += put_varlong(at, max(length, -1))
    if length <= 0:
        return at
    memcpy(at, data, <size_t> length)
    return at + length


cdef int64_t pack(const uint8_t* data, Py_ssize_t size, uint8_t* at) noexcept nogil:
    """Records made of messages, to `at`; only their size where that is NULL."""
    cdef Cursor cursor
    cdef Message message
    cdef int32_t index = 0
    cdef int64_t base = 0, delta, body, total = 0
    cursor_init(&cursor, data, size)
    while next_message(&cursor, &message) == MESSAGE_OK:
        if index == 0:
            base = message.timestamp
        delta = <int64_t> (<uint64_t> message.timestamp - <uint64_t> base)
        body = record_size(&message, delta, index)
        total += varlong_size(body) + body
        if at != NULL:
            at += put_varlong(at, body)
            at[0] = 0
            at += 1
            at += put_varlong(at, delta)
            at += put_varlong(at, index)
            at = put_varint_field(at, message.key, message.key_length)
            at = put_varint_field(at, message.value, message.value_length)
            at[0] = 0
            at += 1
        index += 1
    return total


def records_of_messages(data):
    """The records of a batch, with the first message's timestamp as base, numbered 0, 1, 2 …; of judged messages."""
    cdef Py_buffer view
    cdef int64_t size
    cdef bytes out
    cdef uint8_t* at
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            size = pack(<const uint8_t*> view.buf, view.len, NULL)
        out = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*> PyBytes_AS_STRING(out)
        with nogil:
            pack(<const uint8_t*> view.buf, view.len, at)
        return out
    finally:
        PyBuffer_Release(&view)


cdef struct Rewrite:
    int magic
    int attributes
    int64_t append_time         # -1: each has its own time
    int64_t first               # offset of the first one, the others count on; -1: each keeps its own
    int64_t shift               # added to offsets that are kept
    int64_t least               # what lies before this offset is left out


cdef int64_t rewrite(const uint8_t* data, Py_ssize_t size, const Rewrite* to, uint8_t* at) noexcept nogil:
    cdef Cursor cursor
    cdef Message message
    cdef int64_t offset, total = 0, next_offset = to.first
    cursor_init(&cursor, data, size)
    while next_message(&cursor, &message) == MESSAGE_OK:
        offset = next_offset if to.first >= 0 else message.offset + to.shift
        next_offset += 1
        if offset < to.least:
            continue
        total += message_size(to.magic, message.key_length, message.value_length)
        if at != NULL:
            at = put_message(
                at, offset, to.magic, to.attributes, to.append_time if to.append_time >= 0 else message.timestamp,
                message.key, message.key_length, message.value, message.value_length,
            )
    return total


def rewrite_messages(
    data, int magic, *, int64_t first=KEEP_OFFSETS, int64_t shift=0, int64_t least=0,
    int64_t append_time=NO_APPEND_TIME,
):
    """Judged messages in format `magic`, numbered from `first` on, or with their own offsets moved by `shift`.

    Those before offset `least` are left out.  `append_time` becomes the time of all (magic 1 alone has times).
    """
    cdef Py_buffer view
    cdef int64_t size
    cdef bytes out
    cdef uint8_t* at
    cdef Rewrite to
    to.magic = magic
    to.attributes = TIMESTAMP_TYPE_MASK if append_time >= 0 and magic else 0
    to.append_time = append_time
    to.first = first
    to.shift = shift
    to.least = least
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            size = rewrite(<const uint8_t*> view.buf, view.len, &to, NULL)
        out = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*> PyBytes_AS_STRING(out)
        with nogil:
            rewrite(<const uint8_t*> view.buf, view.len, &to, at)
        return out
    finally:
        PyBuffer_Release(&view)


cdef struct Unpack:
    int magic
    int attributes
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint relative               # offsets count from the first record's
    bint partial                # the last record may be cut off, and is left then
    int64_t least
    int64_t first_offset        # -1: that of the first record here
    # Found:
    int64_t used
    int32_t count
    int64_t last_offset
    int64_t max_timestamp
    int32_t headers_count


cdef int64_t unpack(const uint8_t* data, Py_ssize_t size, Unpack* to, uint8_t* at) noexcept nogil:
    """Converts records to messages at `at` and returns their size; NULL: the size alone; -1: these are not records."""
    cdef Cursor cursor
    cdef Message message
    cdef const uint8_t* end = data + size
    cdef const uint8_t* behind
    cdef int32_t length
    cdef int64_t total = 0
    to.used = to.count = to.headers_count = 0
    to.last_offset = to.max_timestamp = -1
    cursor_init(&cursor, data, size)
    while cursor_left(&cursor):
        length = short_varint(&cursor)
        if to.partial and (cursor.fault == CURSOR_TRUNCATED or cursor_left(&cursor) < length):
            break
        behind = cursor_take(&cursor, length)
        if behind == NULL:
            return -1
        cursor.end = cursor.position
        cursor.position = behind + 1
        message.timestamp = <int64_t> (<uint64_t> to.base_timestamp + <uint64_t> short_varlong(&cursor))
        message.offset = to.base_offset + short_varint(&cursor)
        message.key_length = short_varint(&cursor)
        message.key = cursor_take(&cursor, max(message.key_length, 0))
        message.value_length = short_varint(&cursor)
        message.value = cursor_take(&cursor, max(message.value_length, 0))
        to.headers_count += short_varint(&cursor)
        if cursor.fault:
            return -1
        cursor.position = cursor.end
        cursor.end = end
        to.used = cursor.position - data
        if message.offset < to.least:
            continue
        if to.append_time >= 0:
            message.timestamp = to.append_time
        if to.first_offset < 0:
            to.first_offset = message.offset
        to.count += 1
        to.last_offset = message.offset
        to.max_timestamp = max(to.max_timestamp, message.timestamp)
        total += message_size(to.magic, message.key_length, message.value_length)
        if at != NULL:
            at = put_message(
                at, message.offset - to.first_offset if to.relative else message.offset, to.magic, to.attributes,
                message.timestamp, message.key, message.key_length, message.value, message.value_length,
            )
    return total


cdef bytes unpacked(object payload, BatchInfo info, Unpack* to):
    """The messages; `to` then has their count, offsets and largest timestamp.  InvalidRecordsError."""
    cdef Py_buffer view
    cdef int64_t size, first = to.first_offset
    cdef bytes out
    cdef uint8_t* at
    cdef bint append_time = info.header.attributes & TIMESTAMP_TYPE_MASK
    to.attributes = TIMESTAMP_TYPE_MASK if append_time and to.magic else 0
    to.base_offset = info.header.base_offset
    to.base_timestamp = info.header.base_timestamp
    to.append_time = info.header.max_timestamp if append_time else -1
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            size = unpack(<const uint8_t*> view.buf, view.len, to, NULL)
        if size < 0 or size > INT32_MAX:
            raise InvalidRecordsError("Found invalid record structure")
        out = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*> PyBytes_AS_STRING(out)
        to.first_offset = first
        with nogil:
            unpack(<const uint8_t*> view.buf, view.len, to, at)
        return out
    finally:
        PyBuffer_Release(&view)


def messages_of_records(payload, BatchInfo info not None, int magic, *, int64_t least=0):
    """(messages, count, headers) of the records of a batch, uncompressed.

    Headers are left out, and counted.  Records before offset `least` are left out.  InvalidRecordsError for what are no
    records.
    """
    cdef Unpack to
    to.magic = magic
    to.relative = to.partial = False
    to.least = least
    to.first_offset = -1
    messages = unpacked(payload, info, &to)
    return messages, to.count, to.headers_count


def messages_of_piece(piece, BatchInfo info not None, int magic, int64_t first_offset):
    """(messages, bytes used, count, first offset, last offset, largest timestamp) of the whole records in `piece`.

    They go into a compressed message, with magic 1 by offsets from `first_offset`, that of the batch's first record; -1
    where this is its first piece.  InvalidRecordsError for what are no records.
    """
    cdef Unpack to
    to.magic = magic
    to.relative = magic == 1
    to.partial = True
    to.least = 0
    to.first_offset = first_offset
    messages = unpacked(piece, info, &to)
    return messages, to.used, to.count, to.first_offset, to.last_offset, to.max_timestamp
