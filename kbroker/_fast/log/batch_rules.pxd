from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.log.log_fields cimport AppendRules, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.record_walk cimport Walk


cdef struct BatchRules:
    # What a topic's settings ask of a batch at this moment.
    int64_t now_ms
    int64_t before_max_ms
    int64_t after_max_ms
    int64_t expansion_bytes
    bint needs_keys


cdef inline BatchRules rules_at(AppendRules rules, int64_t now_ms) noexcept:
    return BatchRules(now_ms, rules.before_max_ms, rules.after_max_ms, rules.expansion_bytes, rules.needs_keys)


cdef bint examine_batch(
    const BatchRules* rules, const uint8_t* data, Py_ssize_t size, const Header* header, Walk* walk, Codecs* codecs
) noexcept nogil
cpdef bint fits_segment(
    SegmentFields segment, int64_t limit, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp
) noexcept
cpdef bint is_stored_as_sent(AppendRules rules, BatchInfo info, int64_t size, int64_t now_ms) noexcept
