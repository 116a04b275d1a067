from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

cdef enum:
    RETAINED = 5


cdef struct Batch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta


cdef struct Producer:
    int64_t producer_id
    int64_t last_timestamp
    int64_t current_txn_first_offset    # -1: none is open
    int32_t coordinator_epoch
    int16_t producer_epoch
    int8_t newest
    int8_t count
    int32_t older                       # neighbours in the order of use: see `producer_table`
    int32_t newer
    Batch batches[RETAINED]


cdef void producer_init(Producer* self, int64_t producer_id) noexcept nogil
cdef bint producer_set_epoch(Producer* self, int16_t producer_epoch) noexcept nogil
cdef void producer_add(
    Producer* self,
    int16_t producer_epoch,
    int32_t last_sequence,
    int64_t last_offset,
    int32_t offset_delta,
    int64_t timestamp,
) noexcept nogil
cdef int64_t producer_next_sequence(const Producer* self) noexcept nogil


cdef class ProducerEntry:
    cdef Producer state
