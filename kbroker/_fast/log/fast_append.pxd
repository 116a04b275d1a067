from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.log.log_fields cimport FileFields, LocalLogFields, LogFields, SegmentFields

cdef enum:
    # From this size on other threads may run meanwhile; below it is shorter than handing them the interpreter.
    RELEASE_GIL_BYTES = 131072


cdef int64_t append_at(LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms,
                       bint transactional) except -2
cdef int64_t write_by(FileFields file, object data, int64_t position) except -2
cdef BatchInfo checked_header(
    LogFields log, const uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t first, int64_t position,
    bint transactional
)
cdef bint check_sequence(LogFields log, BatchInfo info) except -1
cdef bint ends_at(LocalLogFields local, SegmentFields segment, int64_t position, int64_t offset) noexcept
