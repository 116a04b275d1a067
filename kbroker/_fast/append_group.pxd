from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.batch_info cimport BatchInfo
from kbroker._fast.log_fields cimport FileFields, LogFields, SegmentFields

cdef enum:
    # So many batches are written by one call at most.
    GROUP_BATCHES = 32


cdef class AppendGroup:
    cdef LogFields log
    cdef SegmentFields segment
    cdef FileFields file
    cdef list infos
    cdef int32_t leader_epoch
    cdef int64_t first_offset
    cdef int64_t next_offset
    cdef int64_t position
    cdef int64_t total
    cdef int64_t[GROUP_BATCHES] offsets
    cdef Py_ssize_t[GROUP_BATCHES] sizes
    cdef (uint8_t*)[GROUP_BATCHES] data

    cdef bint begin(self, LogFields log, int32_t leader_epoch) except -1
    cdef bint add(self, uint8_t* data, Py_ssize_t size, int64_t now_ms) except -1
    cdef bint _knows_producer(self, BatchInfo info)
    cdef bint _is_current(self)
    cdef bint write(self) except -1
    cdef void clear(self)
