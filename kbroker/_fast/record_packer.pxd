"""The columns of one Arrow batch and the records packed out of them: see `record_packer.pyx`."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.column_buffer cimport Room


cdef enum:
    # Three for each of four columns of bytes, two for lists of headers, one for times.
    MAX_VIEWS = 15


cdef struct BytesColumn:
    const int32_t* offsets
    const uint8_t* data
    const uint8_t* valid
    Py_ssize_t data_bytes
    Py_ssize_t shift


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
