"""Varints of records, read through the cursor: the lengths that occur nearly always (one and two bytes) inline."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._fast.base.cursor cimport Cursor, cursor_varint, cursor_varlong


cdef enum:
    MAX_VARINT_BYTES = 5
    MAX_VARLONG_BYTES = 10


cdef inline int32_t short_varint(Cursor* self) noexcept nogil:
    """`cursor_varint`, quick for values of 14 bits."""
    cdef const uint8_t* p = self.position
    cdef uint32_t raw
    if self.end - p >= 2:
        if p[0] < 0x80:
            self.position = p + 1
            raw = p[0]
            return <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
        if p[1] < 0x80:
            self.position = p + 2
            raw = (p[0] & 0x7F) | (<uint32_t>p[1] << 7)
            return <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return cursor_varint(self)


cdef inline int64_t short_varlong(Cursor* self) noexcept nogil:
    """`cursor_varlong`, quick for values of 14 bits."""
    cdef const uint8_t* p = self.position
    cdef uint64_t raw
    if self.end - p >= 2:
        if p[0] < 0x80:
            self.position = p + 1
            raw = p[0]
            return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
        if p[1] < 0x80:
            self.position = p + 2
            raw = (p[0] & 0x7F) | (<uint64_t>p[1] << 7)
            return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return cursor_varlong(self)


cdef inline Py_ssize_t put_varlong(uint8_t* out, int64_t value) noexcept nogil:
    """Writes at most MAX_VARLONG_BYTES to `out`, which must have room, and says how many."""
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 0
    while raw >= 0x80:
        out[size] = <uint8_t>(raw | 0x80)
        raw >>= 7
        size += 1
    out[size] = <uint8_t>raw
    return size + 1


cdef inline Py_ssize_t varlong_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size
