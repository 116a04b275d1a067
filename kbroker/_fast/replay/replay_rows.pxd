"""The rows of one Arrow batch as a replay sends them: see `replay_rows.pyx`."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.records.record_packer cimport BytesColumn, RowColumns


cdef struct Chunk:
    const int64_t* due_us
    const int32_t* topics
    # Rows that were handed over and have no end yet; what they point to must stay.
    Py_ssize_t outstanding


cdef class ReplayRows(RowColumns):
    cdef Chunk chunk
    cdef const int32_t* partitions
    cdef const uint8_t* produced
    cdef BytesColumn marks
    cdef readonly object batch
