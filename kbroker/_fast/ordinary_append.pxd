from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.log_fields cimport LogFields


cdef int64_t append_at(LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms) except -2
cpdef object append_ordinary(LogFields log, records, int32_t leader_epoch, int64_t now_ms)
