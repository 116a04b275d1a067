from libc.stdint cimport int64_t

from kbroker._fast.log.log_fields cimport LogFields, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo


cpdef int count_in(
    LogFields log, SegmentFields segment, BatchInfo info, int64_t first, int64_t size, object marker, bint is_one
) except -1


cdef inline int ask_for_fsync(LogFields log) except -1:
    """The last step, once for what was written together: the fsync that the settings ask for before the answer."""
    if log.committer_ is not None:
        log.committer_.appended(log.local_.log_end_offset)
    return 0
