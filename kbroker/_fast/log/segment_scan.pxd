from libc.stdint cimport int64_t

from kbroker._fast.records.batch_info cimport BatchInfo, Header


cdef struct Found:
    Header header
    int64_t position


cdef class SegmentScan:
    cdef Found* found
    cdef Py_ssize_t count
    cdef readonly int64_t valid_end
    cdef readonly bint complete
    cdef readonly object reason
    cdef BatchInfo info(self, Py_ssize_t at)
