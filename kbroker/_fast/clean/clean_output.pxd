from libc.stdint cimport int64_t, uint8_t


cdef struct Bytes:
    uint8_t* data
    int64_t size
    int64_t capacity


cdef struct Output:
    Bytes log               # what was not taken yet
    Bytes offsets           # index entries, whole files
    Bytes times
    int64_t base_offset
    int64_t position        # of the next batch in the segment
    int64_t interval
    int64_t max_index_bytes
    int64_t since_index
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t indexed_timestamp
    int64_t last_offset
    int64_t batches


cdef bint reserve_bytes(Bytes* self, int64_t more) noexcept nogil
cdef void free_bytes(Bytes* self) noexcept nogil
cdef void free_output(Output* self) noexcept nogil
cdef void begin_segment(
    Output* self, int64_t base_offset, int64_t interval, int64_t max_index_bytes
) noexcept nogil
cdef bint note_batch(Output* self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept nogil
cdef bint end_segment(Output* self) noexcept nogil
