"""The columns of one Arrow batch and the records packed out of them: see `record_packer.pyx`."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.base.column_buffer cimport Room


cdef enum:
    # Three for each of five columns of bytes, two for lists of headers, five columns of numbers.
    MAX_VIEWS = 22
    NULL_BYTES = -1          # the size of a value that is null


cdef struct BytesColumn:
    const int32_t* offsets
    const uint8_t* data
    const uint8_t* valid
    Py_ssize_t data_bytes
    Py_ssize_t shift


cdef inline bint is_valid(const uint8_t* valid, Py_ssize_t row) noexcept nogil:
    return valid == NULL or (valid[row >> 3] >> (row & 7)) & 1


cdef inline Py_ssize_t locate(const BytesColumn* column, Py_ssize_t row, const uint8_t** start) noexcept nogil:
    """The row's size and where it begins; NULL_BYTES for null, -2 for a place outside of the data."""
    cdef int32_t first, last
    row += column.shift
    if column.offsets == NULL or not is_valid(column.valid, row):
        return NULL_BYTES
    first = column.offsets[row]
    last = column.offsets[row + 1]
    if first < 0 or last < first or last > column.data_bytes:
        return -2
    start[0] = column.data + first
    return last - first


cdef class RowColumns:
    cdef readonly Py_ssize_t rows
    cdef Py_buffer[MAX_VIEWS] views
    cdef int view_count
    cdef BytesColumn keys
    cdef BytesColumn values
    cdef const int64_t* timestamps
    cdef const int32_t* header_offsets
    cdef const uint8_t* header_valid
    cdef Py_ssize_t header_shift
    cdef Py_ssize_t header_rows
    cdef BytesColumn header_keys
    cdef BytesColumn header_values

    cdef const void* _hold(self, object buffer, Py_ssize_t needed_bytes) except? NULL
    cdef int _hold_bytes(self, BytesColumn* column, tuple parts, Py_ssize_t rows) except -1


cdef class BatchPacker:
    cdef Room room
    cdef readonly Py_ssize_t limit_bytes
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    cdef int _pack(self, RowColumns columns, Py_ssize_t row, int64_t now_ms) noexcept
