"""What became of records, counted without the GIL by second, topic and partition: see `delivery_cells.pyx`."""

from libc.stdint cimport int32_t, int64_t


cdef enum:
    OFFERED = 0
    SENT = 1
    ACKNOWLEDGED = 2
    LATE = 3
    BYTES = 4
    QUEUE_FULL_US = 5
    COUNTS = 6


cdef struct Bucket:
    int64_t count
    int32_t number           # -1: free


cdef struct Histogram:
    Bucket* buckets
    int32_t used
    int32_t capacity         # a power of two, or 0


cdef struct Cell:
    int32_t second
    int32_t topic
    int32_t partition
    int64_t[COUNTS] counts
    Histogram sent_error
    Histogram latency


cdef struct Cells:
    Cell* cells
    Py_ssize_t used
    Py_ssize_t capacity
    int32_t* places          # open addressing: the number of a cell, -1 free
    Py_ssize_t place_count   # a power of two, or 0


cdef Cell* cells_at(Cells* self, int32_t second, int32_t topic, int32_t partition, Py_ssize_t* hint) noexcept nogil
cdef bint histogram_add(Histogram* self, int64_t microseconds) noexcept nogil
cdef list cells_take(Cells* self)
cdef void cells_free(Cells* self) noexcept nogil


cdef class DeliveryCells:
    cdef Cells cells
