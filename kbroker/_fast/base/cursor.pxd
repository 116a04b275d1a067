"""The one bounds check: a read cursor over untrusted bytes, shared by every `.pyx` that reads them.

A `Cursor` is a C value (`position`, `end`, `fault`).  A read that does not fit sets `fault`, moves the cursor to its
end and gives 0, and every later read fails as well: so a caller may read several fields and check `fault` once, before
it acts upon any of them.  Nothing here raises or needs the GIL.  Numbers are big-endian, as everywhere in Kafka.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t kb_load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t kb_load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t kb_load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    """
    uint16_t kb_load16(const uint8_t*) noexcept nogil
    uint32_t kb_load32(const uint8_t*) noexcept nogil
    uint64_t kb_load64(const uint8_t*) noexcept nogil


cdef enum CursorFault:
    CURSOR_OK = 0
    CURSOR_TRUNCATED = 1        # fewer bytes left than the field needs
    CURSOR_VARINT_TOO_LONG = 2  # a varint that goes on past the width of its type


cdef struct Cursor:
    const uint8_t* position
    const uint8_t* end
    int fault


cdef inline void cursor_init(Cursor* self, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    self.position = start
    self.end = start + size
    self.fault = CURSOR_OK


cdef inline Py_ssize_t cursor_left(const Cursor* self) noexcept nogil:
    return self.end - self.position


cdef inline void cursor_fail(Cursor* self, int fault) noexcept nogil:
    if self.fault == CURSOR_OK:
        self.fault = fault
    self.position = self.end


cdef inline const uint8_t* cursor_take(Cursor* self, Py_ssize_t size) noexcept nogil:
    """The next `size` bytes, or NULL (and a fault) when there are fewer.  A negative size never fits."""
    cdef const uint8_t* start = self.position
    if size < 0 or self.end - start < size:
        cursor_fail(self, CURSOR_TRUNCATED)
        return NULL
    self.position = start + size
    return start


cdef inline int8_t cursor_int8(Cursor* self) noexcept nogil:
    cdef const uint8_t* p = cursor_take(self, 1)
    return 0 if p == NULL else <int8_t>p[0]


cdef inline uint16_t cursor_uint16(Cursor* self) noexcept nogil:
    cdef const uint8_t* p = cursor_take(self, 2)
    return 0 if p == NULL else kb_load16(p)


cdef inline int16_t cursor_int16(Cursor* self) noexcept nogil:
    return <int16_t>cursor_uint16(self)


cdef inline uint32_t cursor_uint32(Cursor* self) noexcept nogil:
    cdef const uint8_t* p = cursor_take(self, 4)
    return 0 if p == NULL else kb_load32(p)


cdef inline int32_t cursor_int32(Cursor* self) noexcept nogil:
    return <int32_t>cursor_uint32(self)


cdef inline uint64_t cursor_uint64(Cursor* self) noexcept nogil:
    cdef const uint8_t* p = cursor_take(self, 8)
    return 0 if p == NULL else kb_load64(p)


cdef inline int64_t cursor_int64(Cursor* self) noexcept nogil:
    return <int64_t>cursor_uint64(self)


cdef inline uint32_t cursor_uvarint(Cursor* self) noexcept nogil:
    """An unsigned varint of at most 32 bits: more bits than that, or a sixth byte, is a fault."""
    cdef const uint8_t* p = self.position
    cdef uint32_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while shift < 35:
        if p >= self.end:
            cursor_fail(self, CURSOR_TRUNCATED)
            return 0
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0F:
            break
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            self.position = p
            return value
        shift += 7
    cursor_fail(self, CURSOR_VARINT_TOO_LONG)
    return 0


cdef inline uint64_t cursor_uvarlong(Cursor* self) noexcept nogil:
    """An unsigned varint of at most 64 bits."""
    cdef const uint8_t* p = self.position
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while shift < 70:
        if p >= self.end:
            cursor_fail(self, CURSOR_TRUNCATED)
            return 0
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            break
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            self.position = p
            return value
        shift += 7
    cursor_fail(self, CURSOR_VARINT_TOO_LONG)
    return 0


cdef inline int32_t cursor_varint(Cursor* self) noexcept nogil:
    """A zigzag varint, as records carry them."""
    cdef uint32_t raw = cursor_uvarint(self)
    return <int32_t>((raw >> 1) ^ (0 - (raw & 1)))


cdef inline int64_t cursor_varlong(Cursor* self) noexcept nogil:
    cdef uint64_t raw = cursor_uvarlong(self)
    return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
