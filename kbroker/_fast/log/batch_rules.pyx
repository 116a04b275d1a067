"""What is asked of a batch before it is stored as it is, and of a segment before it gets it: each rule once.

`storage.log.log_validator` says what is wrong with a batch that breaks a rule, `storage.log.roll` why a segment rolls.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t

from kbroker._fast.log.log_fields cimport AppendRules, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo, Header, walk_fits
from kbroker._fast.records.layout cimport COMPRESSION_MASK, RECORDS_POSITION
from kbroker._fast.records.compressed_walk cimport walk_unpacked
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.record_batch cimport examine
from kbroker._fast.records.record_walk cimport Walk


cdef bint examine_batch(
    const BatchRules* rules, const uint8_t* data, Py_ssize_t size, const Header* header, Walk* walk, Codecs* codecs
) noexcept nogil:
    """Whether checksum, records, keys and timestamps are as the log takes them.  `codecs`: for a compressed batch."""
    cdef uint32_t crc
    if not examine(data, header, walk, &crc):
        return False
    if header.attributes & COMPRESSION_MASK and not walk_unpacked(
        walk, header, codecs, data + RECORDS_POSITION, size - RECORDS_POSITION, rules.expansion_bytes
    ):
        return False
    return _records_fit(rules, header, walk)


cdef inline bint _records_fit(const BatchRules* rules, const Header* header, const Walk* walk) noexcept nogil:
    if rules.needs_keys and walk.keyless_count:
        return False
    return walk_fits(header, walk, rules.now_ms, rules.before_max_ms, rules.after_max_ms)


cpdef bint is_stored_as_sent(AppendRules rules, BatchInfo info, int64_t size, int64_t now_ms) noexcept:
    """Whether an uncompressed batch of `size` bytes, found good by its checksum and a walk, is stored as it was sent.

    No control batch, base offset 0, a sequence where there is a producer, keys where the topic asks for them, its own
    timestamps within the topic's bounds, and their true maximum in the header.
    """
    cdef BatchRules asked = rules_at(rules, now_ms)
    cdef Walk walk
    if not info.walked or info.header.attributes & COMPRESSION_MASK or size > rules.max_message_bytes:
        return False
    walk.keyless_count = info.keyless_count
    walk.min_timestamp = info.min_record_timestamp
    walk.max_timestamp = info.max_record_timestamp
    return _records_fit(&asked, &info.header, &walk)


cpdef bint fits_segment(
    SegmentFields segment, int64_t limit, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp
) noexcept:
    """Whether the segment takes a batch at `position` without being rolled.

    `limit`: how many bytes a segment may have.  A timestamp behind `roll_after_timestamp` may still fit: the full rule
    says.
    """
    return (
        position + size <= limit
        and max_timestamp <= segment.roll_after_timestamp
        and not segment.indexes_full
        and last_offset - segment.base_offset <= INT32_MAX
    )
