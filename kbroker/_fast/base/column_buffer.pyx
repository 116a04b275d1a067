"""Buffers of columns: see `column_buffer.pxd`."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free
from libc.string cimport memset


cdef class ColumnBuffer:
    """A read-only buffer that owns its memory; `size` bytes."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*>self.data, self.size, 1, flags)


cdef ColumnBuffer take_room(Room* room):
    """The room's bytes as a buffer; the room starts anew, with as much memory as it needed this time."""
    cdef ColumnBuffer taken = ColumnBuffer.__new__(ColumnBuffer)
    cdef Py_ssize_t needed = room.size
    # Arrow takes no buffer without an address, not even an empty one.
    if not room_reserve(room, 1):
        raise MemoryError
    taken.data = room.data
    taken.size = room.size
    room.data = NULL
    room.size = room.capacity = 0
    # Without memory the next append will say so.
    room_reserve(room, needed + (needed >> 3))
    return taken


cdef tuple take_binary(Binary* binary):
    """(validity or None, offsets, bytes) of a column, which starts anew."""
    cdef object valid = None
    cdef object offsets, data
    if binary.null_count:
        valid = take_room(&binary.valid)
    binary.valid.size = 0
    if binary.count == 0 and not room_put32(&binary.offsets, 0):
        raise MemoryError
    offsets = take_room(&binary.offsets)
    data = take_room(&binary.data)
    binary.count = binary.null_count = 0
    return valid, offsets, data


cdef void room_free(Room* room) noexcept:
    free(room.data)
    memset(room, 0, sizeof(Room))


cdef void binary_free(Binary* binary) noexcept:
    room_free(&binary.offsets)
    room_free(&binary.data)
    room_free(&binary.valid)
    binary.count = binary.null_count = 0
