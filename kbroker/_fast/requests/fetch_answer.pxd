from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.log.fetch_target cimport FetchTarget
from kbroker._fast.log.log_fields cimport FileFields, LogFields, PartitionFields, RecordSource, SegmentFields
from kbroker._fast.net.direct cimport Topic
from kbroker._fast.requests.fetch_rows cimport FetchHead, FetchLayout, Found

cdef enum:
    INLINE_BYTES = 448      # of an answer: a partition or two without records


cdef class FetchVersions:
    cdef FetchLayout layout


cdef class FetchRules:
    cdef FetchLayout layout
    cdef object file_system
    cdef object read_partition
    cdef object compile_answer
    cdef list row_plans

    cdef object row_plan(self, int version)


cdef class FetchAnswer:
    cdef FetchRules rules
    cdef object services
    cdef int version
    cdef int32_t replica_id
    cdef object reader
    cdef bint committed
    cdef int32_t min_bytes
    cdef int64_t left               # how much more the records may be
    cdef int64_t total              # how much they are
    cdef bint urgent                # something must be answered at once
    cdef bint written_at_once       # each partition before the next one is looked at
    cdef SegmentFields segment      # of what was found last, with its file; None where no records were
    cdef FileFields file
    cdef RecordSource waiting       # where the fetch may wait: the first one
    cdef list more_waiting          # and more of them
    cdef list late                  # those that are late reads; None without one
    cdef PartitionFields read         # what Python read last; None after an error
    cdef list unsent                # (log, bytes) of records in an answer that may not be given yet
    cdef Py_ssize_t copy_left       # how many bytes of records may still be copied
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef bytes buffer               # what `data` points into, or None: `start`
    cdef list parts
    cdef int64_t cut_bytes          # of the parts
    cdef uint8_t[INLINE_BYTES] start

    cdef int set_limits(self, const FetchHead* head) except -1
    cdef int may_wait_at(self, RecordSource source) except -1
    cdef tuple all_waiting(self)
    cdef int32_t wait_ms(self, int32_t max_wait_ms) except? -1
    cdef bint has_enough(self, int32_t max_wait_ms, bint force) except -1
    cdef bint look(self, LogFields log, int64_t offset, int64_t max_bytes, Found* found) except -1
    cdef object read_alone(self, FetchTarget target)
    cdef int count_sent(self, LogFields log, int64_t size) except -1
    cdef int begin(self, int correlation_id, int32_t session_id, Py_ssize_t topics) except -1
    cdef int begin_topic(self, const Topic* topic, Py_ssize_t rows) except -1
    cdef int end_topic(self) except -1
    cdef bint put_found(self, int32_t index, int64_t offset, Found* found) except -1
    cdef bint _copy(self, int64_t offset, const Found* found) except -1
    cdef bint _read_cached(self, int fd, int64_t position, Py_ssize_t size) except -1
    cdef int put_data(self, object data) except -1
    cdef object end(self)
    cdef int put_bytes(self, const void* data, Py_ssize_t size) except -1
    cdef int put_region(self, FileRegion region) except -1
    cdef int _cut(self, FileRegion region) except -1
    cdef int put_tags(self) except -1
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int flush(self) except -1
    cdef bytes _taken(self)
