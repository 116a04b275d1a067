from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.records.record_walk cimport Walk


cdef enum HeaderFault:
    HEADER_OK = 0
    HEADER_TRUNCATED     # fewer bytes than the header, or than the batch says it has
    HEADER_TOO_SMALL     # batch_length below what any batch has: detail = batch_length
    HEADER_MAGIC         # not 0, 1 or 2
    HEADER_OLD_MAGIC     # a message of format 0 or 1
    HEADER_OVERHEAD      # smaller than a v2 header


cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t partition_leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t records_count


cdef int parse_header(const uint8_t* data, Py_ssize_t left, Header* out) noexcept nogil


cdef class BatchInfo:
    cdef Header header
    cdef readonly Py_ssize_t position
    cdef readonly bint walked
    cdef readonly int32_t keyless_count
    cdef readonly int64_t min_record_timestamp
    cdef readonly int64_t max_record_timestamp
    cdef int32_t max_timestamp_index
    cdef void take_walk(self, const Walk* walk) noexcept


cdef BatchInfo make_info(const Header* header, Py_ssize_t position)
cdef object header_error(int fault, const Header* header, Py_ssize_t left)
cdef object walk_error(const Walk* walk)
