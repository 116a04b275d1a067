"""Records as Python objects: for internal topics, tools and tests.  The produce and fetch paths make none.

`decode_records` gives records in portions, so that a caller may stop early and a large batch does not become one list.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_left, cursor_take
from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.records.layout cimport TIMESTAMP_TYPE_MASK
from kbroker._fast.base.varint cimport put_varlong, short_varint, short_varlong, varlong_size

from kbroker._fast.records.batch_info import InvalidRecordsError

cdef list NO_HEADERS = []


cdef object _take_bytes(Cursor* cursor, int32_t length):
    """A key or value: None for a negative length."""
    cdef const uint8_t* data
    if length < 0:
        return None
    data = cursor_take(cursor, length)
    if data == NULL:
        raise InvalidRecordsError("Found invalid record structure")
    return PyBytes_FromStringAndSize(<const char*>data, length)


cdef tuple _take_headers(Cursor* cursor):
    cdef int32_t count = short_varint(cursor)
    cdef list headers
    cdef int32_t length
    if cursor.fault or count < 0 or count > cursor_left(cursor):
        raise InvalidRecordsError(f"Found invalid number of record headers {count}")
    if count == 0:
        return ()
    headers = []
    while count > 0:
        count -= 1
        length = short_varint(cursor)
        if cursor.fault or length < 0:
            raise InvalidRecordsError(f"Invalid negative header key size {length}")
        key = _take_bytes(cursor, length)
        headers.append((key.decode("utf-8", "replace"), _take_bytes(cursor, short_varint(cursor))))
    return tuple(headers)


cdef object _take_record(Cursor* cursor, BatchInfo info, object factory):
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* start
    cdef int32_t length = short_varint(cursor)
    cdef int64_t timestamp
    cdef int32_t offset_delta
    if cursor.fault or length < 0 or length > cursor_left(cursor):
        raise InvalidRecordsError(f"Invalid record size: {length}, {cursor_left(cursor)} bytes are left")
    start = cursor.position
    cursor.end = start + length
    cursor_take(cursor, 1)
    timestamp = <int64_t>(<uint64_t>info.header.base_timestamp + <uint64_t>short_varlong(cursor))
    if info.header.attributes & TIMESTAMP_TYPE_MASK:
        timestamp = info.header.max_timestamp
    offset_delta = short_varint(cursor)
    key = _take_bytes(cursor, short_varint(cursor))
    value = _take_bytes(cursor, short_varint(cursor))
    headers = _take_headers(cursor)
    if cursor.fault or cursor.position != cursor.end:
        raise InvalidRecordsError("Found invalid record structure")
    cursor.end = end
    return factory(info.header.base_offset + offset_delta, timestamp, key, value, headers)


def decode_records(payload, BatchInfo info not None, factory, Py_ssize_t pos=0, Py_ssize_t limit=-1):
    """(records, next position): at most `limit` records of the uncompressed `payload`, from byte `pos` on.

    `factory(offset, timestamp, key, value, headers)` makes each.  The walk of `validate` is not repeated: here it only
    matters that nothing outside of the payload is read.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    cdef list records = []
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if pos < 0 or pos > view.len:
            raise ValueError(f"position {pos} is outside of a payload of {view.len} bytes")
        cursor_init(&cursor, <const uint8_t*>view.buf + pos, view.len - pos)
        while cursor_left(&cursor) and limit != 0:
            records.append(_take_record(&cursor, info, factory))
            limit -= 1
        return records, cursor.position - <const uint8_t*>view.buf
    finally:
        PyBuffer_Release(&view)


cdef int _gather(Cursor* cursor, dict newest, int last_type) except -1:
    """One record into `newest`; 0 where it is of another kind."""
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int32_t key_length, value_length
    cdef int32_t length = short_varint(cursor)
    if cursor.fault or length < 0 or length > cursor_left(cursor):
        return 0
    cursor.end = cursor.position + length
    cursor_take(cursor, 1)
    short_varlong(cursor)
    short_varint(cursor)
    key_length = short_varint(cursor)
    if key_length < 2:
        return 0
    key = cursor_take(cursor, key_length)
    value_length = short_varint(cursor)
    if value_length < 0:
        return 0
    value = cursor_take(cursor, value_length)
    if cursor.fault or key[0] or key[1] > last_type:
        return 0
    if short_varint(cursor) or cursor.fault or cursor.position != cursor.end:
        return 0
    newest[PyBytes_FromStringAndSize(<const char*>key, key_length)] = PyBytes_FromStringAndSize(
        <const char*>value, value_length)
    cursor.end = end
    return 1


def gather_newest(payload, dict newest not None, int last_type) -> bool:
    """Take the value of each key in the uncompressed records of `payload` into `newest`, in place of the one before.

    False, with a part of them taken, at a record without a value, with headers, damaged, or whose key does not begin
    with an int16 from 0 to `last_type`: all of them are then to be read in order, behind those that were taken before.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&cursor, <const uint8_t*>view.buf, view.len)
        while cursor_left(&cursor):
            if not _gather(&cursor, newest, last_type):
                return False
        return True
    finally:
        PyBuffer_Release(&view)


cdef Py_ssize_t _sized(object value) except -1:
    """The bytes of a nullable field, its length included."""
    if value is None:
        return 1
    return varlong_size(len(value)) + len(value)


cdef uint8_t* _put(uint8_t* out, object value) except NULL:
    cdef Py_buffer view
    if value is None:
        return out + put_varlong(out, -1)
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    out += put_varlong(out, view.len)
    memcpy(out, view.buf, <size_t>view.len)
    out += view.len
    PyBuffer_Release(&view)
    return out


cdef int _put_record(
    uint8_t* at,
    Py_ssize_t body,
    int64_t timestamp_delta,
    int32_t offset_delta,
    object key,
    object value,
    list headers,
) except -1:
    at += put_varlong(at, body)
    at[0] = 0
    at += 1
    at += put_varlong(at, timestamp_delta)
    at += put_varlong(at, offset_delta)
    at = _put(at, key)
    at = _put(at, value)
    at += put_varlong(at, len(headers))
    for name, content in headers:
        at = _put(at, name)
        at = _put(at, content)
    return 0


cdef int put_record(bytearray out, int64_t timestamp_delta, int32_t offset_delta, key, value, headers) except -1:
    """Encodes one record at the end of `out`: `key` and `value` bytes-like or None, headers (str, bytes or None)."""
    cdef list pairs = NO_HEADERS if not headers else [(name.encode(), content) for name, content in headers]
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
    cdef Py_ssize_t body = 1 + varlong_size(timestamp_delta) + varlong_size(offset_delta)
    body += _sized(key) + _sized(value) + varlong_size(len(pairs))
    for name, content in pairs:
        body += _sized(name) + _sized(content)
    if body > 0x7FFFFFFF:
        raise ValueError(f"a record of {body} bytes is too large")
    PyByteArray_Resize(out, before + varlong_size(body) + body)
    try:
        _put_record(
            <uint8_t*>PyByteArray_AS_STRING(out) + before, body, timestamp_delta, offset_delta, key, value, pairs
        )
    except BaseException:
        # Something that is no bytes: leave `out` as it was.
        PyByteArray_Resize(out, before)
        raise
    return 0


def append_record(bytearray out not None, int64_t timestamp_delta, int32_t offset_delta, key, value, headers=()):
    """The same for Python."""
    put_record(out, timestamp_delta, offset_delta, key, value, headers)
