from libc.stdint cimport int32_t, int64_t


cdef class FetchTarget:
    cdef public object topic
    cdef readonly bytes topic_id
    cdef readonly int32_t index
    cdef readonly int64_t fetch_offset
    cdef readonly int32_t max_bytes
    cdef readonly int32_t current_leader_epoch
    cdef readonly int32_t last_fetched_epoch
    cdef readonly int64_t told_high_watermark
    cdef readonly int64_t told_log_start_offset
