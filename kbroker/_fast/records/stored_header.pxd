from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker._fast.records.batch_info cimport Header

cdef uint32_t crc32(const uint8_t* data, int64_t size) noexcept nogil
cdef int parse_stored_header(const uint8_t* data, Py_ssize_t left, Header* out) noexcept nogil
cdef uint32_t stored_checksum(const uint8_t* data, const Header* header) noexcept nogil
