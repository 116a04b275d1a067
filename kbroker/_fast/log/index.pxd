from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef inline uint32_t load32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline int64_t load64(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t>load32(at) << 32) | load32(at + 4))


cdef class MappedFile:
    cdef const uint8_t* data
    cdef readonly Py_ssize_t size


cdef class IndexTable:
    cdef readonly int64_t base_offset
    cdef readonly Py_ssize_t entries
    cdef readonly Py_ssize_t stored
    cdef readonly MappedFile mapped
    cdef Py_ssize_t entry_size
    cdef uint8_t* tail
    cdef Py_ssize_t tail_capacity
    cdef readonly int64_t last_key
    cdef readonly int64_t last_value

    cdef const uint8_t* entry(self, Py_ssize_t slot) noexcept nogil
    cdef uint8_t* next_slot(self) except NULL
    cdef int64_t key_at(self, Py_ssize_t slot) noexcept nogil
    cdef int64_t value_at(self, Py_ssize_t slot) noexcept nogil
    cdef Py_ssize_t search(self, int64_t target) noexcept nogil
    cdef Py_ssize_t bisect(self, int64_t target, Py_ssize_t low, Py_ssize_t high) noexcept nogil
    cdef bint readable(self, int64_t target) noexcept nogil


cdef class OffsetTable(IndexTable):
    cdef Py_ssize_t add(self, int64_t offset, int64_t position) except -1


cdef class TimeTable(IndexTable):
    cdef Py_ssize_t add(self, int64_t timestamp, int64_t offset) except -1


cdef struct TailBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t size


cdef class AppendTail:
    cdef readonly int64_t size
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t bytes_since_index
    cdef public int64_t index_interval_bytes
    cdef TailBatch ring[32]
    cdef unsigned int next_batch
    cdef unsigned int batches
    cdef bint take(self, int64_t base_offset, int64_t last_offset, int64_t size, int64_t max_timestamp) noexcept nogil
    cdef const TailBatch* batch_of(self, int64_t offset) noexcept nogil
