"""The loops of compaction over plain batches: reading, hashing, looking up.  `clean` says what for."""

from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.records.batch_info cimport HEADER_OLD_MAGIC, HEADER_TRUNCATED, parse_header
from kbroker._fast.records.layout cimport ATTRIBUTES_POSITION, COMPRESSION_MASK, RECORDS_POSITION
from kbroker._fast.clean.clean_output cimport reserve_bytes
from kbroker._fast.clean.clean_records cimport ENTRIES_NO_MEMORY, Entry, take_entries
from kbroker._fast.base.crc32c cimport crc32c_update
from kbroker._fast.base.md5 cimport DIGEST_BYTES, md5_digests
from kbroker._fast.records.native_codecs cimport UNPACK_NO_MEMORY, UNPACK_ROOM, unpack
from kbroker._fast.records.native_libraries cimport serves
from kbroker._fast.clean.offset_map cimport (
    OffsetMap,
    Table,
    slot_offset,
    table_prefetch,
    table_prefetch_next,
    table_slot_from,
    table_store,
)
from kbroker._fast.records.stored_header cimport parse_stored_header, stored_checksum

cdef enum:
    PAYLOAD_BYTES = 1048576     # of a group, unless one batch has more

cdef int64_t LAST_OFFSET = 0x7FFFFFFFFFFFFFFF
cdef int64_t MOST_PAYLOAD_BYTES = 1 << 30


cdef int read_batch(State* self, const uint8_t* data, Py_ssize_t end) noexcept nogil:
    """The whole batch at `position`, its checksum verified: a Kind, or STOP_SPECIAL for one that is neither."""
    cdef const uint8_t* at = data + self.position
    self.fault = parse_header(at, end - self.position, &self.header)
    if self.fault == HEADER_TRUNCATED:
        return STOP_END
    if self.fault == HEADER_OLD_MAGIC:
        self.fault = parse_stored_header(at, end - self.position, &self.header)
        if not self.fault:
            self.crc = stored_checksum(at, &self.header)
            return STOP_SPECIAL if self.crc == self.header.crc else STOP_CRC
    if self.fault:
        return STOP_HEADER
    self.crc = crc32c_update(0, at + ATTRIBUTES_POSITION, <size_t>(batch_size(&self.header) - ATTRIBUTES_POSITION))
    if self.crc != self.header.crc:
        return STOP_CRC
    if not self.header.attributes & SPECIAL_MASK:
        return PLAIN
    if self.header.records_count and serves(self.header.attributes & SPECIAL_MASK):
        return PACKED
    return STOP_SPECIAL


cdef int take_batch(State* self, const uint8_t* payload, Py_ssize_t size) noexcept nogil:
    """Adds the records of the batch in `header` to the entries."""
    self.fault = take_entries(
        &self.entries, payload, size, self.header.records_count, self.header.base_offset, self.header.last_offset_delta
    )
    if self.fault:
        return STOP_MEMORY if self.fault == ENTRIES_NO_MEMORY else STOP_RECORDS
    return STOP_END


cdef int take_payload(State* self, const uint8_t* batch) noexcept nogil:
    """Adds the records of a compressed batch to the entries.  STOP_ROOM: the payloads of earlier entries take the room
    that this batch needs.  STOP_SPECIAL: the compression library refuses the batch."""
    cdef Bytes* payloads = &self.payloads
    cdef Py_ssize_t size = batch_size(&self.header) - RECORDS_POSITION
    cdef int codec = self.header.attributes & COMPRESSION_MASK
    cdef Py_ssize_t made = UNPACK_ROOM
    cdef int64_t want = max(<int64_t> PAYLOAD_BYTES, <int64_t> size * 4)
    if payloads.capacity:
        made = unpack(
            &self.codecs, codec, batch + RECORDS_POSITION, size, payloads.data + payloads.size,
            payloads.capacity - payloads.size, MOST_PAYLOAD_BYTES,
        )
    while made == UNPACK_ROOM:
        if payloads.size:
            return STOP_ROOM
        if payloads.capacity > MOST_PAYLOAD_BYTES:
            return STOP_SPECIAL
        if not reserve_bytes(payloads, min(max(want, payloads.capacity * 2), MOST_PAYLOAD_BYTES + 1)):
            return STOP_MEMORY
        made = unpack(
            &self.codecs, codec, batch + RECORDS_POSITION, size, payloads.data, payloads.capacity, MOST_PAYLOAD_BYTES
        )
    if made < 0:
        return STOP_MEMORY if made == UNPACK_NO_MEMORY else STOP_SPECIAL
    payloads.size += made
    return take_batch(self, payloads.data + payloads.size - made, made)


cdef int take(State* self, const uint8_t* batch, int kind) noexcept nogil:
    if kind == PACKED:
        return take_payload(self, batch)
    return take_batch(self, batch + RECORDS_POSITION, batch_size(&self.header) - RECORDS_POSITION)


cdef void begin_group(State* self) noexcept nogil:
    """Forgets the entries, the batches that they are of, and their payloads."""
    self.entries.count = 0
    self.batch_count = 0
    self.collected_bytes = 0
    self.payloads.size = 0


cdef int collect_batch(State* self, const uint8_t* batch, int kind) noexcept nogil:
    """Adds the batch in `header` to the group, and moves the position behind it; on a result other than 0 the batch was
    not added."""
    cdef Batch* item = &self.batches[self.batch_count]
    cdef int stop
    item.header = self.header
    item.data = batch
    item.first = self.entries.count
    item.codec = self.header.attributes & COMPRESSION_MASK
    stop = take(self, batch, kind)
    if stop:
        return stop
    item.count = self.entries.count - item.first
    self.batch_count += 1
    self.position += batch_size(&self.header)
    self.collected_bytes += batch_size(&self.header)
    return STOP_END


cdef void hash_window(
    State* self, Window* window, Py_ssize_t first, int64_t from_offset, int64_t to_offset, const Table* table
) noexcept nogil:
    """Computes the digests of the keyed entries whose offsets are in the range, among at most WINDOW entries from
    `first` on, and prefetches their slots."""
    cdef Py_ssize_t at
    cdef Entry* entry
    window.count = 0
    for at in range(first, min(first + WINDOW, self.entries.count)):
        entry = &self.entries.items[at]
        if entry.key != NULL and from_offset <= entry.offset <= to_offset:
            self.messages[window.count].data = entry.key
            self.messages[window.count].size = entry.key_length
            window.places[window.count] = at
            window.count += 1
    md5_digests(self.messages, window.count, &window.digests[0])
    if table.slots:
        for at in range(window.count):
            window.first_slots[at] = table_prefetch(table, &window.digests[at * DIGEST_BYTES])
    window.slots = table.slots


cdef void settle_window(const Window* window, const Table* table) noexcept nogil:
    """Prefetches the slot of the second probe of each key whose first probe does not find its slot."""
    cdef Py_ssize_t at
    if table.slots and table.slots == window.slots:
        for at in range(window.count):
            table_prefetch_next(table, &window.digests[at * DIGEST_BYTES], window.first_slots[at])


cdef int put_window(State* self, const Window* window, OffsetMap offsets) noexcept nogil:
    cdef Py_ssize_t at
    cdef int done
    cdef int64_t offset
    cdef const uint8_t* digest
    cdef Table* table = &offsets.table
    for at in range(window.count):
        offset = self.entries.items[window.places[at]].offset
        digest = &window.digests[at * DIGEST_BYTES]
        if table.slots == window.slots and table.entries < table.limit:
            table_store(table, digest, table_slot_from(table, digest, window.first_slots[at]), offset)
            continue
        done = offsets.put(digest, offset)
        if done != 1:
            offsets.latest_offset = max(offsets.latest_offset, offset - 1)
            return STOP_FULL if done == 0 else STOP_MEMORY
    return STOP_END


cdef int put_entries(State* self, OffsetMap offsets, int64_t start_offset) noexcept nogil:
    """Pass one: puts the entries into the map.  A full map covers the log up to the first entry that it did not
    take."""
    cdef Py_ssize_t first = 0
    cdef int side = 0
    cdef int stop
    hash_window(self, &self.windows[0], 0, start_offset, LAST_OFFSET, &offsets.table)
    while first < self.entries.count:
        first += WINDOW
        if first < self.entries.count:
            hash_window(self, &self.windows[1 - side], first, start_offset, LAST_OFFSET, &offsets.table)
        settle_window(&self.windows[side], &offsets.table)
        stop = put_window(self, &self.windows[side], offsets)
        if stop:
            return stop
        side = 1 - side
    self.entries.count = 0
    return STOP_END


cdef int index_plain(State* self, const uint8_t* data, Py_ssize_t end, OffsetMap offsets, int64_t start) noexcept nogil:
    cdef int stop
    cdef int taken
    cdef int full
    cdef int64_t last = offsets.latest_offset
    begin_group(self)
    while True:
        stop = read_batch(self, data, end)
        if stop < 0 and self.header.base_offset + self.header.last_offset_delta >= start:
            taken = take(self, data + self.position, stop)
            if taken == STOP_RECORDS or taken == STOP_MEMORY:
                return taken
            stop = taken if taken else stop
        if stop < 0:
            last = max(last, self.header.base_offset + self.header.last_offset_delta)
            self.position += batch_size(&self.header)
            if self.entries.count < GROUP:
                continue
        full = put_entries(self, offsets, start)
        if full:
            return full
        begin_group(self)
        if last >= start:
            offsets.latest_offset = max(offsets.latest_offset, last)
        if stop >= 0 and stop != STOP_ROOM:
            return stop


cdef void decide(State* self, OffsetMap offsets) noexcept nogil:
    """Pass two: decides which of the entries stay; whether a batch's delete horizon removes its tombstones is not
    decided here."""
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t at
    cdef int side = 0
    cdef Entry* entry
    cdef const Window* window
    cdef int64_t latest = offsets.latest_offset
    hash_window(self, &self.windows[0], 0, 0, latest, &offsets.table)
    while first < self.entries.count:
        first += WINDOW
        if first < self.entries.count:
            hash_window(self, &self.windows[1 - side], first, 0, latest, &offsets.table)
        window = &self.windows[side]
        settle_window(window, &offsets.table)
        if offsets.table.slots:
            for at in range(window.count):
                entry = &self.entries.items[window.places[at]]
                entry.kept = entry.offset >= slot_offset(
                    table_slot_from(&offsets.table, &window.digests[at * DIGEST_BYTES], window.first_slots[at])
                )
        side = 1 - side
    for at in range(self.entries.count):
        entry = &self.entries.items[at]
        entry.past_map = entry.offset > latest
        if entry.key == NULL and not entry.past_map:
            entry.kept = False
