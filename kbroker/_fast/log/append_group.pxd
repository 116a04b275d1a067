from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.base.helper_pool cimport MOST_WORKERS, HelperPool
from kbroker._fast.log.log_fields cimport FileFields, LogFields, SegmentFields
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.log.batch_rules cimport BatchRules
from kbroker._fast.records.layout cimport STAMPED_BYTES
from kbroker._fast.records.record_walk cimport Walk

cdef enum:
    # So many batches are written by one call at most.
    GROUP_BATCHES = 32


cdef struct Member:
    uint8_t* data
    Py_ssize_t size
    const Header* header
    int64_t offset              # -1 where the records are not in order
    Walk walk
    uint8_t[STAMPED_BYTES] before


cdef struct Group:
    int fd
    int64_t position
    int64_t first_offset
    int32_t leader_epoch
    BatchRules rules
    int count
    Member[GROUP_BATCHES] members
    int64_t wanted              # bytes of the batches that are in order
    int64_t written             # what came of them; NOT_TRIED before, and when that is settled


cdef class AppendGroup:
    cdef LogFields log
    cdef SegmentFields segment
    cdef FileFields file
    cdef list infos
    cdef bint compressed
    cdef int64_t next_offset
    cdef int64_t total
    cdef Group group

    cdef bint begin(self, LogFields log, int32_t leader_epoch, int64_t now_ms) except -1
    cdef bint add(self, uint8_t* data, Py_ssize_t size, bint transactional) except -1
    cdef int _write_by_hook(self) except -1
    cdef bint _knows_producer(self, const Header* header)
    cdef bint is_current(self)
    cdef bint _is_at_the_end(self)
    cdef bint finish(self) except -1
    cdef int undo(self) except -1
    cdef void clear(self)


cdef int write_groups(list groups, int count, HelperPool helper_pool) except -1
