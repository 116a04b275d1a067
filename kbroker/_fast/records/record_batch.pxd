from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.layout cimport BASE_OFFSET_POSITION, PARTITION_LEADER_EPOCH_POSITION
from kbroker._fast.base.big_endian cimport kb_store32, kb_store64
from kbroker._fast.records.record_walk cimport Walk


cdef BatchInfo whole_batch(const uint8_t* data, Py_ssize_t size)
cdef bint check_bytes(const uint8_t* data, const Header* header, Walk* walk, uint32_t* crc) noexcept nogil


cdef inline void stamp_at(uint8_t* data, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    """Writes both into a header.  The CRC stays valid."""
    kb_store64(data + BASE_OFFSET_POSITION, <uint64_t> base_offset)
    kb_store32(data + PARTITION_LEADER_EPOCH_POSITION, <uint32_t> leader_epoch)
