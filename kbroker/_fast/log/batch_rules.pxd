from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker._fast.log.log_fields cimport AppendRules, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.layout cimport CONTROL_MASK
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.native_libraries cimport CODEC_ZSTD
from kbroker._fast.records.record_walk cimport Walk


cpdef enum ClientFault:
    # What a client may not write, in the order in which Kafka looks for it.
    CLIENT_FAULT_NONE
    CLIENT_FAULT_BASE_OFFSET
    CLIENT_FAULT_CONTROL
    CLIENT_FAULT_SEQUENCE


cpdef enum RollCause:
    # Why a batch goes into a new segment, in the order in which Kafka looks for it.
    ROLL_NOT
    ROLL_SIZE
    ROLL_TIME
    ROLL_INDEX_FULL
    ROLL_OFFSET


cpdef enum:
    FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
    MAX_RELATIVE_OFFSET = 0x7FFFFFFF    # what an entry of an index has room for


cdef struct BatchRules:
    # What a topic's settings ask of a batch at this moment.
    int64_t now_ms
    int64_t before_max_ms
    int64_t after_max_ms
    int64_t expansion_bytes
    bint needs_keys


cdef inline BatchRules rules_at(AppendRules rules, int64_t now_ms) noexcept:
    return BatchRules(now_ms, rules.before_max_ms, rules.after_max_ms, rules.expansion_bytes, rules.needs_keys)


cdef inline ClientFault client_fault(const Header* header) noexcept nogil:
    """What forbids a client to write a batch, by its header."""
    if header.base_offset != 0:
        return CLIENT_FAULT_BASE_OFFSET
    if header.attributes & CONTROL_MASK:
        return CLIENT_FAULT_CONTROL
    if header.producer_id >= 0 and header.base_sequence < 0:
        return CLIENT_FAULT_SEQUENCE
    return CLIENT_FAULT_NONE


cdef inline bint are_timely(
    int64_t earliest_ms, int64_t latest_ms, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms
) noexcept nogil:
    """Whether times are at most so long before and after now.  Unsigned: the distance of two may pass 63 bits."""
    if latest_ms > now_ms and <uint64_t> latest_ms - <uint64_t> now_ms > <uint64_t> after_max_ms:
        return False
    return earliest_ms >= now_ms or <uint64_t> now_ms - <uint64_t> earliest_ms <= <uint64_t> before_max_ms


cdef inline bint have_keys(bint needs_keys, int32_t keyless_count) noexcept nogil:
    """Whether no record lacks a key that the topic needs, because it is compacted."""
    return not needs_keys or keyless_count == 0


cdef inline bint takes_codec(int codec, int produce_version) noexcept nogil:
    """Whether a Produce request of this version may bring a batch in this codec (KIP-110)."""
    return codec != CODEC_ZSTD or produce_version >= FIRST_PRODUCE_VERSION_WITH_ZSTD


cdef inline bint holds_offset(SegmentFields segment, int64_t last_offset) noexcept:
    """Whether the indexes of a segment have room for an offset."""
    return 0 <= last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET


cdef bint check_batch(
    const BatchRules* rules, const uint8_t* data, Py_ssize_t size, const Header* header, Walk* walk, Codecs* codecs
) noexcept nogil
cpdef int roll_cause(
    SegmentFields segment, int64_t limit, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp
) noexcept
cpdef bint check_stored_as_sent(AppendRules rules, BatchInfo info, int64_t size, int64_t now_ms) noexcept
