from libc.stdint cimport int64_t

from kbroker._fast.batch_info cimport BatchInfo


cpdef bint walk_compressed(BatchInfo info, batch, int64_t limit_bytes) except -1
