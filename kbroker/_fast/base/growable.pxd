"""A growable C buffer with big-endian writers, for everything that builds wire bytes.

A `Growable` starts without memory; `growable_reserve` is the only place that allocates.  The writers named `put_*`
write into room that has been reserved before and check nothing.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kbroker._fast.base.big_endian cimport kb_store16, kb_store32, kb_store64


cdef struct Growable:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef inline int growable_reserve(Growable* self, Py_ssize_t more) except -1:
    cdef Py_ssize_t wanted
    cdef uint8_t* moved
    if self.capacity - self.size >= more:
        return 0
    wanted = max(self.capacity * 2, self.size + more, 512)
    moved = <uint8_t*>PyMem_Realloc(self.data, wanted)
    if moved == NULL:
        raise MemoryError
    self.data = moved
    self.capacity = wanted
    return 0


cdef inline void growable_free(Growable* self) noexcept:
    PyMem_Free(self.data)
    self.data = NULL
    self.size = self.capacity = 0


cdef inline void put_8(Growable* self, uint8_t value) noexcept:
    self.data[self.size] = value
    self.size += 1


cdef inline void put_16(Growable* self, uint16_t value) noexcept:
    kb_store16(self.data + self.size, value)
    self.size += 2


cdef inline void put_32(Growable* self, uint32_t value) noexcept:
    kb_store32(self.data + self.size, value)
    self.size += 4


cdef inline void put_64(Growable* self, uint64_t value) noexcept:
    kb_store64(self.data + self.size, value)
    self.size += 8


cdef inline void put_bytes(Growable* self, const void* start, Py_ssize_t size) noexcept:
    memcpy(self.data + self.size, start, size)
    self.size += size


cdef inline int uvarint_size(uint32_t value) noexcept:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* write_uvarint(uint8_t* p, uint32_t value) noexcept:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef inline void put_uvarint(Growable* self, uint32_t value) noexcept:
    """Takes up to 5 bytes of the room reserved."""
    self.size = write_uvarint(self.data + self.size, value) - self.data


cdef inline int growable_prefix_size(Growable* self, Py_ssize_t start) except -1:
    """Inserts, before the bytes written from `start` on, how many they are, as an unsigned varint."""
    cdef Py_ssize_t length = self.size - start
    cdef int width = uvarint_size(<uint32_t>length)
    growable_reserve(self, width)
    memmove(self.data + start + width, self.data + start, length)
    write_uvarint(self.data + start, <uint32_t>length)
    self.size += width
    return 0
