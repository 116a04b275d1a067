from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.net.direct cimport Topic
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.base.growable cimport Growable
from kbroker._fast.log.log_fields cimport LogFields
from kbroker._fast.requests.one_partition cimport OnePartition, Stretch
from kbroker._fast.requests.ordinary_fetch cimport OrdinaryFetch


cdef class ManyFetch(OrdinaryFetch):
    pass


cdef class FetchAnswer:
    cdef OnePartition asked     # what is asked of all, and of the partition that is looked at
    cdef Growable out
    cdef list partitions        # that have been looked at
    cdef list regions           # each behind how many bytes it comes
    cdef int64_t left           # how much more the records may be
    cdef int64_t total          # how much they are

    cdef bint set_limits(self, object services) except -1
    cdef FileRegion look(self, OrdinaryFetch reader, LogFields log, Stretch* found)
    cdef int begin(self, int version, int correlation_id, int session_id, Py_ssize_t topics) except -1
    cdef int begin_topic(self, int version, const Topic* topic, Py_ssize_t rows) except -1
    cdef int put_partition(self, int version, const Stretch* found, FileRegion records) except -1
    cdef int put_tags(self, int version) except -1
    cdef list end(self, int version)
    cdef void wrote(self, uint8_t* end) noexcept
