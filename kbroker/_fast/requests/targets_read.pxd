from libc.stdint cimport int32_t, int64_t

from kbroker._fast.log.fetch_target cimport FetchTarget
from kbroker._fast.log.log_fields cimport FileFields, LogFields, PartitionFields, SegmentFields
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.pending cimport DelayedFetch
from kbroker._fast.requests.fetch_answer cimport FetchAnswer, FetchRules
from kbroker._fast.requests.fetch_rows cimport FetchHead, Found


cdef class LookedAt:
    cdef FetchTarget target
    cdef Found found
    cdef SegmentFields segment
    cdef FileFields file
    cdef object data
    cdef LogFields log          # whose records it has; None where a follower gets them


cdef class TargetsRead:
    cdef FetchRules rules
    cdef object services
    cdef int version
    cdef int correlation_id
    cdef int32_t replica_id
    cdef object reader
    cdef FetchHead head
    cdef list targets
    cdef object session
    cdef bint incremental
    cdef bint by_id
    cdef Gate gate
    cdef long judged_in         # the generation of the gate's judge when the targets were judged
    cdef bint is_again          # it was read before, and there was too little
    # Of one attempt:
    cdef FetchAnswer answer
    cdef dict topics            # LookedAt of each topic, by its key
    cdef list with_records      # the targets that have any
    cdef Py_ssize_t looked      # how many targets were looked at
    cdef list order             # of the topics that are still to be written
    cdef dict led               # what this broker leads, by topic and index
    cdef dict names             # of topics, by id
    cdef object replica         # the follower whose session it is, as Python's number, else None
    cdef double now             # as ISRs count it
    cdef bint has_news          # there is something that an answer may have to say

    cdef object attempt(self, bint force)
    cdef object attempt_unmarked(self)
    cdef int pass_gate(self, Gate gate) except -1
    cdef int _judge(self) except -1
    cdef int _look_at(self, FetchTarget target) except -1
    cdef PartitionFields _quiet(self, FetchTarget target)
    cdef int _add(self, FetchTarget target, const Found* found, object data, PartitionFields partition) except -1
    cdef int _begin_writing(self) except -1
    cdef int _write(self, LookedAt row) except -1


cdef class DelayedTargets(DelayedFetch):
    cdef TargetsRead read
