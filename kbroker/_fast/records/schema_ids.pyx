"""Which records name no schema that is known: the wire format of Confluent, read from the records of one v2 batch.

A key or value that is not null begins with a zero byte and the id of its schema, an int32.  Null has nothing to name.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_left, cursor_take
from kbroker._fast.base.varint cimport short_varint, short_varlong

from kbroker._fast.records.batch_info import InvalidRecordsError

cdef enum:
    PREFIX_BYTES = 5

# What stands for an id where there is none.  Ids are below 2^31, or, as unsigned numbers, below 2^32.
cdef int64_t NAMES_NONE = -1
NO_SCHEMA = NAMES_NONE


cdef inline int64_t named(const uint8_t* data, int32_t length) noexcept nogil:
    """The id that a key or value begins with."""
    if length < PREFIX_BYTES or data[0]:
        return NAMES_NONE
    return (<uint32_t>data[1] << 24) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 8) | data[4]


cdef class _Side:
    """The keys or the values of a batch."""

    cdef bint is_key
    cdef bint is_asked
    cdef int64_t good
    cdef set known

    def __cinit__(self, bint is_key, bint is_asked, set known not None):
        self.is_key = is_key
        self.is_asked = is_asked
        # An id that was found known: records of one schema are the rule.
        self.good = NAMES_NONE
        self.known = known

    cdef bint judge(self, const uint8_t* data, int32_t length, int32_t index, list found) except -1:
        cdef int64_t schema_id
        if not self.is_asked or length < 0:
            return True
        schema_id = named(data, length)
        if schema_id == self.good and schema_id != NAMES_NONE:
            return True
        if schema_id != NAMES_NONE and schema_id in self.known:
            self.good = schema_id
            return True
        found.append((index, self.is_key, schema_id))
        return True


cdef const uint8_t* _take(Cursor* cursor, int32_t* length) noexcept:
    length[0] = short_varint(cursor)
    if length[0] < 0:
        return NULL
    return cursor_take(cursor, length[0])


cdef int _look_at(Cursor* cursor, _Side keys, _Side values, int32_t index, list found) except -1:
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* data
    cdef int32_t key_length, value_length
    cdef int32_t length = short_varint(cursor)
    if cursor.fault or length < 0 or length > cursor_left(cursor):
        raise InvalidRecordsError(f"Invalid record size: {length}, {cursor_left(cursor)} bytes are left")
    cursor.end = cursor.position + length
    cursor_take(cursor, 1)
    short_varlong(cursor)
    short_varint(cursor)
    data = _take(cursor, &key_length)
    if not cursor.fault:
        keys.judge(data, key_length, index, found)
    data = _take(cursor, &value_length)
    if cursor.fault:
        raise InvalidRecordsError("Found invalid record structure")
    values.judge(data, value_length, index, found)
    cursor.position = cursor.end
    cursor.end = end
    return 0


def unknown_schemas(payload, set known not None, *, bint keys, bint values, Py_ssize_t most):
    """(index of the record, whether it is the key, id) of keys and values whose id is not among `known`, `most` or one
    more of them; NO_SCHEMA for an id where there is none.

    `payload`: the uncompressed records of a batch that was walked before.  InvalidRecordsError.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    cdef list found = []
    cdef int32_t index = 0
    cdef _Side key_side = _Side(True, keys, known)
    cdef _Side value_side = _Side(False, values, known)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&cursor, <const uint8_t*>view.buf, view.len)
        while cursor_left(&cursor) and len(found) < most:
            _look_at(&cursor, key_side, value_side, index, found)
            index += 1
        return found
    finally:
        PyBuffer_Release(&view)
