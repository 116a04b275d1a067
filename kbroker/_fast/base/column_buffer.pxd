"""Memory that grows without the GIL and then becomes a buffer that Arrow may hold, without a copy.

A `Room` is raw memory; `Binary` is Arrow's layout of a nullable column of bytes: int32 offsets, one more than rows,
the bytes themselves, and a bit for each row that is not null.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef struct Room:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct Binary:
    Room offsets
    Room data
    Room valid
    Py_ssize_t count
    Py_ssize_t null_count


cdef class ColumnBuffer:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size


cdef ColumnBuffer take_room(Room* room)
cdef tuple take_binary(Binary* binary)
cdef void room_free(Room* room) noexcept
cdef void binary_free(Binary* binary) noexcept


cdef inline bint room_reserve(Room* self, Py_ssize_t more) noexcept nogil:
    """Room for `more` bytes; False when there is no memory.  Doubles, so that appending stays linear."""
    cdef Py_ssize_t wanted
    cdef uint8_t* moved
    if self.capacity - self.size >= more:
        return True
    # Some bytes more than asked for: readers of Arrow's buffers may look at whole words.
    wanted = max(self.capacity * 2, self.size + more + 64)
    wanted = max(wanted, 4096)
    moved = <uint8_t*>realloc(self.data, <size_t>wanted)
    if moved == NULL:
        return False
    self.data = moved
    self.capacity = wanted
    return True


cdef inline bint room_put32(Room* self, int32_t value) noexcept nogil:
    if not room_reserve(self, 4):
        return False
    memcpy(self.data + self.size, &value, 4)
    self.size += 4
    return True


cdef inline bint room_put64(Room* self, int64_t value) noexcept nogil:
    if not room_reserve(self, 8):
        return False
    memcpy(self.data + self.size, &value, 8)
    self.size += 8
    return True


cdef inline bint room_put_bit(Room* self, Py_ssize_t index, bint value) noexcept nogil:
    """Bit `index`, which follows the one put last."""
    if index & 7 == 0:
        if not room_reserve(self, 1):
            return False
        self.data[self.size] = 0
        self.size += 1
    if value:
        self.data[self.size - 1] |= <uint8_t>(1 << (index & 7))
    return True


cdef inline bint binary_put(Binary* self, const uint8_t* start, int32_t size) noexcept nogil:
    """One more row: `size` bytes, or null when it is negative.  The caller keeps all bytes together below 2 GiB."""
    if self.count == 0 and not room_put32(&self.offsets, 0):
        return False
    if not room_put_bit(&self.valid, self.count, size >= 0):
        return False
    if size > 0:
        if not room_reserve(&self.data, size):
            return False
        memcpy(self.data.data + self.data.size, start, <size_t>size)
        self.data.size += size
    elif size < 0:
        self.null_count += 1
    self.count += 1
    return room_put32(&self.offsets, <int32_t>self.data.size)
