from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.record_walk cimport Walk


cdef bint walk_unpacked(
    Walk* walk, const Header* header, Codecs* codecs, const uint8_t* payload, Py_ssize_t size, int64_t limit_bytes
) noexcept nogil
cdef bint walk_in_c(BatchInfo info, const uint8_t* payload, Py_ssize_t size, int64_t limit_bytes) except -1
cpdef bint walk_compressed(BatchInfo info, batch, int64_t limit_bytes) except -1
