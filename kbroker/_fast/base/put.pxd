"""Writers of an answer's fields, one after the other: each function returns the position of the next field.

The caller has reserved the space.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker._fast.base.big_endian cimport kb_store16, kb_store32, kb_store64


cdef inline uint8_t* put8(uint8_t* at, uint8_t value) noexcept nogil:
    at[0] = value
    return at + 1


cdef inline uint8_t* put16(uint8_t* at, uint16_t value) noexcept nogil:
    kb_store16(at, value)
    return at + 2


cdef inline uint8_t* put32(uint8_t* at, uint32_t value) noexcept nogil:
    kb_store32(at, value)
    return at + 4


cdef inline uint8_t* put64(uint8_t* at, int64_t value) noexcept nogil:
    kb_store64(at, <uint64_t> value)
    return at + 8


cdef inline uint8_t* put_uvarint(uint8_t* at, uint32_t value) noexcept nogil:
    while value >= 0x80:
        at = put8(at, <uint8_t> (value | 0x80))
        value >>= 7
    return put8(at, <uint8_t> value)
