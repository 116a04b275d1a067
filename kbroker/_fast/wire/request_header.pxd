"""What of a request header needs more than a look at the cursor."""

from libc.stdint cimport uint32_t

from kbroker._fast.base.cursor cimport Cursor, cursor_take, cursor_uvarint


cdef inline void skip_tagged_fields(Cursor* cursor) noexcept nogil:
    """Unknown tagged fields of a header are skipped, as the protocol asks."""
    cdef uint32_t left = cursor_uvarint(cursor)
    while left > 0 and not cursor.fault:
        cursor_uvarint(cursor)
        cursor_take(cursor, cursor_uvarint(cursor))
        left -= 1
