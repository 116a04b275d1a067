from libc.stdint cimport int32_t, int64_t

from kbroker._fast.log.log_fields cimport PartitionFields, is_leader_known


cdef class FetchTarget:
    cdef public object topic
    cdef readonly bytes topic_id
    cdef readonly int32_t index
    cdef readonly int64_t fetch_offset
    cdef readonly int32_t max_bytes
    cdef readonly int32_t current_leader_epoch
    cdef readonly int32_t last_fetched_epoch
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t answered_high_watermark
    cdef readonly int64_t answered_log_start_offset
    cdef public int refusal

    cdef bint is_changed(self, Py_ssize_t size, int64_t high_watermark, int64_t log_start_offset) noexcept
    cdef void note_answer(self, int64_t high_watermark, int64_t log_start_offset) noexcept


cpdef bint is_enough(int64_t size, int64_t min_bytes, int64_t max_wait_ms, bint may_wait, bint urgent,
                     bint force) noexcept
cdef inline bint is_plain_read(PartitionFields partition, int32_t leader_epoch, int32_t last_fetched_epoch) noexcept:
    """Whether C may read a partition for such a client: its leader is the one that the client knows, and the client
    compares no epochs of records."""
    return last_fetched_epoch < 0 and is_leader_known(partition, leader_epoch)


cdef PartitionFields partition_to_read(FetchTarget target, dict topics, dict names, bint by_id)
