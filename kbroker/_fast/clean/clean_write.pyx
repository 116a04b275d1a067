"""Writing what compaction keeps of a batch.  See `clean` for the rules."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.records.batch_info cimport Header, parse_header
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    COMPRESSION_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PARTITION_LEADER_EPOCH_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORDS_COUNT_POSITION,
    RECORDS_POSITION,
    TIMESTAMP_TYPE_MASK,
)
from kbroker._fast.clean.clean_output cimport Output, begin_segment, note_batch, reserve_bytes
from kbroker._fast.clean.clean_records cimport Entry
from kbroker._fast.base.big_endian cimport kb_store16, kb_store32, kb_store64
from kbroker._fast.base.crc32c cimport crc32c_update
from kbroker._fast.records.native_codecs cimport Codecs, pack, pack_bound
from kbroker._fast.base.varint cimport put_varlong, varlong_size


cdef enum:
    # A new timestamp delta (10 bytes at most) and, for the longer record, a longer length.
    STAMPED_RECORD_BYTES = 14


cdef void write_header(uint8_t* out, const Header* header, int64_t size) noexcept nogil:
    """All of a header; `size` is the batch's.  The records must be in place, as the checksum is over them."""
    kb_store64(out + BASE_OFFSET_POSITION, <uint64_t>header.base_offset)
    kb_store32(out + BATCH_LENGTH_POSITION, <uint32_t>(size - LOG_OVERHEAD_BYTES))
    kb_store32(out + PARTITION_LEADER_EPOCH_POSITION, <uint32_t>header.partition_leader_epoch)
    out[MAGIC_POSITION] = 2
    kb_store16(out + ATTRIBUTES_POSITION, <uint16_t>header.attributes)
    kb_store32(out + LAST_OFFSET_DELTA_POSITION, <uint32_t>header.last_offset_delta)
    kb_store64(out + BASE_TIMESTAMP_POSITION, <uint64_t>header.base_timestamp)
    kb_store64(out + MAX_TIMESTAMP_POSITION, <uint64_t>header.max_timestamp)
    kb_store64(out + PRODUCER_ID_POSITION, <uint64_t>header.producer_id)
    kb_store16(out + PRODUCER_EPOCH_POSITION, <uint16_t>header.producer_epoch)
    kb_store32(out + BASE_SEQUENCE_POSITION, <uint32_t>header.base_sequence)
    kb_store32(out + RECORDS_COUNT_POSITION, <uint32_t>header.records_count)
    kb_store32(out + CRC_POSITION, crc32c_update(0, out + ATTRIBUTES_POSITION, <size_t>(size - ATTRIBUTES_POSITION)))


cdef int write_empty(Output* out, const Header* header) noexcept nogil:
    """A header without records, which keeps sequence and last offset (Kafka's writeEmptyHeader)."""
    cdef Header empty = header[0]
    if not reserve_bytes(&out.log, RECORDS_POSITION):
        return False
    empty.attributes = <int16_t>(header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK))
    empty.base_timestamp = -1
    empty.records_count = 0
    write_header(out.log.data + out.log.size, &empty, RECORDS_POSITION)
    out.log.size += RECORDS_POSITION
    return note_batch(out, RECORDS_POSITION, header.base_offset + header.last_offset_delta, header.max_timestamp)


cdef uint8_t* copy_kept(uint8_t* at, const Entry* entries, Py_ssize_t count) noexcept nogil:
    """The records that stay, as they are; neighbours in one piece."""
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t last
    cdef Py_ssize_t size
    while first < count:
        if not entries[first].kept:
            first += 1
            continue
        last = first
        while last + 1 < count and entries[last + 1].kept:
            last += 1
        size = entries[last].end - entries[first].start
        memcpy(at, entries[first].start, <size_t>size)
        at += size
        first = last + 1
    return at


cdef uint8_t* restamp_kept(uint8_t* at, const Entry* entries, Py_ssize_t count, int64_t shift) noexcept nogil:
    """The records that stay, their timestamp deltas larger by `shift`."""
    cdef Py_ssize_t place
    cdef Py_ssize_t rest
    cdef int64_t delta
    cdef const Entry* entry
    for place in range(count):
        entry = &entries[place]
        if not entry.kept:
            continue
        # Unsigned, because a hostile delta may wrap; Java's sum wraps as well.
        delta = <int64_t>(<uint64_t>entry.timestamp_delta + <uint64_t>shift)
        rest = entry.end - entry.fields
        at += put_varlong(at, 1 + varlong_size(delta) + rest)
        # The attributes of a record: no version uses them.
        at[0] = 0
        at += 1
        at += put_varlong(at, delta)
        memcpy(at, entry.fields, <size_t>rest)
        at += rest
    return at


cdef int write_changed(
    Output* out, const Header* header, const Entry* entries, Py_ssize_t count, int32_t kept, bint stamp, int64_t horizon
) noexcept nogil:
    cdef Header changed = header[0]
    cdef int64_t max_timestamp = INT64_MIN
    cdef int64_t timestamp
    cdef int64_t room = RECORDS_POSITION
    cdef Py_ssize_t at
    cdef uint8_t* start
    cdef uint8_t* end
    for at in range(count):
        if entries[at].kept:
            room += entries[at].end - entries[at].start + STAMPED_RECORD_BYTES
            timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>entries[at].timestamp_delta)
            max_timestamp = max(max_timestamp, timestamp)
    if not reserve_bytes(&out.log, room):
        return False
    start = out.log.data + out.log.size
    if stamp:
        changed.attributes = <int16_t>(header.attributes | DELETE_HORIZON_MASK)
        changed.base_timestamp = horizon
        end = restamp_kept(
            start + RECORDS_POSITION, entries, count, <int64_t>(<uint64_t>header.base_timestamp - <uint64_t>horizon)
        )
    else:
        end = copy_kept(start + RECORDS_POSITION, entries, count)
    changed.records_count = kept
    # Records of a batch with the append time have the header's; of the others, the latest that stays.
    if not header.attributes & TIMESTAMP_TYPE_MASK:
        changed.max_timestamp = max_timestamp
    write_header(start, &changed, end - start)
    out.log.size += end - start
    return note_batch(
        out, end - start, header.base_offset + header.last_offset_delta, changed.max_timestamp
    )


cdef int write_batch(
    Output* out, const Header* header, const uint8_t* data, Entry* entries, Py_ssize_t count, const Rules* rules
) noexcept nogil:
    """Writes what stays of a batch whose entries are judged, leaving out tombstones past their delete horizon.

    `data` is the batch as it is, to be copied when nothing changes; NULL leaves that to the caller (WRITE_VERBATIM).
    Returns a Written.
    """
    cdef Py_ssize_t at
    cdef int32_t kept = 0
    cdef bint tombstones = False
    cdef bint has_horizon = (header.attributes & DELETE_HORIZON_MASK) != 0
    cdef bint expired = has_horizon and rules.now_ms >= header.base_timestamp
    for at in range(count):
        if entries[at].kept and not entries[at].has_value:
            if expired and not entries[at].past_map:
                entries[at].kept = False
            else:
                tombstones = True
        kept += entries[at].kept
    if kept == 0:
        if not rules.keep_empty:
            return WRITE_NOTHING
        return WRITE_EMPTY if write_empty(out, header) else WRITE_NO_MEMORY
    if (tombstones or rules.stamp) and not has_horizon:
        return (
            WRITE_CHANGED
            if write_changed(out, header, entries, count, kept, True, rules.horizon_ms)
            else WRITE_NO_MEMORY
        )
    if kept < count:
        return WRITE_CHANGED if write_changed(out, header, entries, count, kept, False, 0) else WRITE_NO_MEMORY
    if data != NULL and not copy_batch(out, header, data, <int64_t>header.batch_length + LOG_OVERHEAD_BYTES):
        return WRITE_NO_MEMORY
    return WRITE_VERBATIM


cdef bint copy_batch(Output* out, const Header* header, const uint8_t* data, int64_t size) noexcept nogil:
    if not reserve_bytes(&out.log, size):
        return False
    memcpy(out.log.data + out.log.size, data, <size_t>size)
    out.log.size += size
    return note_batch(out, size, header.base_offset + header.last_offset_delta, header.max_timestamp)


cdef bint pack_changed(Output* out, const Output* plain, Codecs* codecs, int codec) noexcept nogil:
    """A batch whose records lie there plain, its header saying that they are packed: packs them."""
    cdef Header changed
    cdef Py_ssize_t made
    cdef Py_ssize_t size = plain.log.size - RECORDS_POSITION
    cdef Py_ssize_t room = pack_bound(codec, size)
    cdef uint8_t* start
    if parse_header(plain.log.data, plain.log.size, &changed) or not reserve_bytes(&out.log, RECORDS_POSITION + room):
        return False
    start = out.log.data + out.log.size
    made = pack(codecs, codec, plain.log.data + RECORDS_POSITION, size, start + RECORDS_POSITION, room)
    if made < 0:
        return False
    write_header(start, &changed, RECORDS_POSITION + made)
    out.log.size += RECORDS_POSITION + made
    return note_batch(
        out, RECORDS_POSITION + made, changed.base_offset + changed.last_offset_delta, changed.max_timestamp
    )


cdef int write_packed(
    Output* out,
    Output* aside,
    Codecs* codecs,
    int codec,
    const Header* header,
    const uint8_t* data,
    Entry* entries,
    Py_ssize_t count,
    const Rules* rules,
) noexcept nogil:
    """`write_batch` for a batch that is compressed in `data` and decompressed in its entries.

    What changes is written to `aside` first, whose index takes no entries, and packed from there.
    """
    cdef int written
    cdef bint good = True
    begin_segment(aside, header.base_offset, INT64_MAX, 0)
    written = write_batch(aside, header, NULL, entries, count, rules)
    if written == WRITE_VERBATIM:
        good = copy_batch(out, header, data, <int64_t>header.batch_length + LOG_OVERHEAD_BYTES)
    elif written == WRITE_EMPTY:
        good = copy_batch(out, header, aside.log.data, aside.log.size)
    elif written == WRITE_CHANGED:
        good = pack_changed(out, aside, codecs, codec)
    return written if good else WRITE_NO_MEMORY
