from libc.stdint cimport int32_t, int64_t


cdef int put_record(bytearray out, int64_t timestamp_delta, int32_t offset_delta, key, value, headers) except -1
