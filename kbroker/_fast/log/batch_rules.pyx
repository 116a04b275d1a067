"""Rules for a batch before it is stored, and for the segment that takes it: each once, for fast and general path.

This module only decides whether a rule holds.  `storage.log.log_validator` says in which order Kafka looks, and what is
wrong with a batch that breaks one; `storage.log.roll` has the time after which a segment rolls, and the reason for the
log of the broker.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.log.log_fields cimport AppendRules, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.layout cimport COMPRESSION_MASK, RECORDS_POSITION, TIMESTAMP_TYPE_MASK
from kbroker._fast.records.compressed_walk cimport walk_unpacked
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.record_batch cimport check_bytes
from kbroker._fast.records.record_walk cimport Walk


cdef bint check_batch(
    const BatchRules* rules, const uint8_t* data, Py_ssize_t size, const Header* header, Walk* walk, Codecs* codecs
) noexcept nogil:
    """Whether checksum, records, keys and timestamps are as the log takes them.  `codecs`: for a compressed batch."""
    cdef uint32_t crc
    if not check_bytes(data, header, walk, &crc):
        return False
    if header.attributes & COMPRESSION_MASK and not walk_unpacked(
        walk, header, codecs, data + RECORDS_POSITION, size - RECORDS_POSITION, rules.expansion_bytes
    ):
        return False
    return _check_walked(rules, header, walk)


cdef inline bint _check_walked(const BatchRules* rules, const Header* header, const Walk* walk) noexcept nogil:
    """Whether a producer's batch may be stored as it is, judged by its header and the earliest and latest time of its
    records: it has create time, within the topic's bounds, and the header's maximum is the true one."""
    return (
        client_fault(header) == CLIENT_FAULT_NONE
        and not header.attributes & TIMESTAMP_TYPE_MASK
        and have_keys(rules.needs_keys, walk.keyless_count)
        and walk.max_timestamp == header.max_timestamp
        and are_timely(walk.min_timestamp, walk.max_timestamp, rules.now_ms, rules.before_max_ms, rules.after_max_ms)
    )


cpdef bint check_stored_as_sent(AppendRules rules, BatchInfo info, int64_t size, int64_t now_ms) noexcept:
    """Whether an uncompressed batch of `size` bytes that checksum and walk found good is stored as it was sent."""
    cdef BatchRules asked = rules_at(rules, now_ms)
    cdef Walk walk
    if not info.walked or info.header.attributes & COMPRESSION_MASK or size > rules.max_message_bytes:
        return False
    walk.keyless_count = info.keyless_count
    walk.min_timestamp = info.min_record_timestamp
    walk.max_timestamp = info.max_record_timestamp
    return _check_walked(&asked, &info.header, &walk)


def find_client_fault(BatchInfo info not None) -> int:
    """See `client_fault`: a `ClientFault`."""
    return client_fault(&info.header)


def check_times(int64_t earliest_ms, int64_t latest_ms, int64_t now_ms, int64_t before_max_ms,
                int64_t after_max_ms) -> bool:
    """See `are_timely`."""
    return are_timely(earliest_ms, latest_ms, now_ms, before_max_ms, after_max_ms)


def check_keys(bint needs_keys, int32_t keyless_count) -> bool:
    """See `have_keys`."""
    return have_keys(needs_keys, keyless_count)


def check_codec(int codec, int produce_version) -> bool:
    """See `takes_codec`."""
    return takes_codec(codec, produce_version)


def check_offset(SegmentFields segment not None, int64_t last_offset) -> bool:
    """See `holds_offset`."""
    return holds_offset(segment, last_offset)


cpdef int roll_cause(
    SegmentFields segment, int64_t limit, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp
) noexcept:
    """Why a batch at `position` goes into a new segment: a `RollCause`, ROLL_NOT where this one takes it.

    `limit`: how many bytes a segment may have.  ROLL_TIME: the timestamp lies behind `roll_after_timestamp`, which
    `storage.log.roll` has to say anew where that is ASK_RULE.
    """
    if position + size > limit:
        return ROLL_SIZE
    if max_timestamp > segment.roll_after_timestamp:
        return ROLL_TIME
    if segment.indexes_full:
        return ROLL_INDEX_FULL
    return ROLL_NOT if holds_offset(segment, last_offset) else ROLL_OFFSET
