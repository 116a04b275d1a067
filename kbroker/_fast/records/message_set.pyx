"""Messages of the formats before record batches: judged and stamped in whole sets.

What is judged is uncompressed: a message set as it came, or what a compressed message holds.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint8_t, uint64_t

from kbroker._fast.base.big_endian cimport kb_store32, kb_store64
from kbroker._fast.base.cursor cimport Cursor, cursor_init, kb_load32
from kbroker._fast.records.batch_info cimport HEADER_OK, Header, make_info
from kbroker._fast.records.layout cimport LOG_OVERHEAD_BYTES
from kbroker._fast.records.message cimport (
    COMPRESSION_MASK,
    MESSAGE_CRC_START,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_COMPRESSED,
    MESSAGE_CRC,
    MESSAGE_CRC_POSITION,
    MESSAGE_END,
    MESSAGE_FIELDS,
    MESSAGE_FIELDS_POSITION,
    MESSAGE_LEAST_SIZE,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_POSITION,
    MESSAGE_OK,
    MESSAGE_SIZE,
    TIMESTAMP_TYPE_MASK,
    Message,
    crc32,
    is_intact,
    next_message,
)
from kbroker._fast.records.stored_header cimport parse_stored_header, stored_checksum

from kbroker._fast.records.batch_info import CorruptBatchError, InvalidRecordsError

cdef enum:
    # From this size on other threads may run meanwhile; below it is shorter than handing them the interpreter.
    RELEASE_GIL_BYTES = 32768


cdef class MessageSet:
    """The result of a walk over messages; `size_in_bytes` excludes an incomplete message at the end."""

    cdef readonly int32_t count
    cdef readonly int32_t keyless_count
    cdef readonly int64_t size_in_bytes
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t min_timestamp     # of those that have one; INT64_MAX where none has
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly bint in_order             # offsets count 0, 1, 2 …
    cdef readonly int32_t append_time_count  # of those that say that their time is that of an append

    def __cinit__(self):
        self.min_timestamp = INT64_MAX
        self.first_timestamp = self.max_timestamp = self.first_offset = self.last_offset = -1
        self.in_order = True

    cdef void note(self, const Message* message) noexcept nogil:
        if self.count == 0:
            self.first_timestamp = message.timestamp
            self.first_offset = message.offset
        self.in_order = self.in_order and message.offset == self.count
        self.keyless_count += message.key_length < 0
        self.append_time_count += message.magic == 1 and (message.attributes & TIMESTAMP_TYPE_MASK) != 0
        self.max_timestamp = max(self.max_timestamp, message.timestamp)
        if message.timestamp != -1:
            self.min_timestamp = min(self.min_timestamp, message.timestamp)
        self.last_offset = message.offset
        self.count += 1
        self.size_in_bytes += message.size


cdef int walk(MessageSet out, Cursor* cursor, int magic, bint inner) noexcept nogil:
    cdef Message message
    cdef int fault
    while True:
        fault = next_message(cursor, &message)
        if fault == MESSAGE_END:
            return MESSAGE_OK
        if fault == MESSAGE_SIZE:
            return fault
        if fault == MESSAGE_MAGIC or message.magic != magic:
            return MESSAGE_MAGIC
        if message.attributes & COMPRESSION_MASK:
            return MESSAGE_COMPRESSED
        if inner and not is_intact(&message):
            return MESSAGE_CRC
        if fault:
            return fault
        out.note(&message)


cdef dict FAULTS = {
    MESSAGE_MAGIC: "another magic than the first one's",
    MESSAGE_FIELDS: "a key or value that ends behind it",
    MESSAGE_COMPRESSED: "a codec, and is not alone",
}


def walk_messages(data, int magic, *, bint inner=False):
    """Judges uncompressed messages of one format: sizes, keys and values, and with `inner` their checksums.

    CorruptBatchError where bytes are damaged, InvalidRecordsError where they are no messages that may stand here.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    cdef MessageSet found = MessageSet()
    cdef int fault
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&cursor, <const uint8_t*> view.buf, view.len)
        if view.len >= RELEASE_GIL_BYTES:
            with nogil:
                fault = walk(found, &cursor, magic, inner)
        else:
            fault = walk(found, &cursor, magic, inner)
    finally:
        PyBuffer_Release(&view)
    if fault == MESSAGE_SIZE:
        raise CorruptBatchError("Record size is less than the minimum record overhead (14)")
    if fault == MESSAGE_CRC:
        raise CorruptBatchError("Record is corrupt")
    if fault:
        raise InvalidRecordsError(f"Message {found.count} has {FAULTS[fault]}")
    return found


cdef struct Entries:
    int32_t count
    int magic
    int codec
    bint alike
    int64_t size
    int64_t oversized
    int64_t detail              # of a fault: the size or magic that is wrong


cdef int scan(Entries* out, const uint8_t* at, int64_t left, int64_t max_entry_bytes) noexcept nogil:
    cdef Header header
    cdef int64_t size
    while out.oversized == 0 and left >= LOG_OVERHEAD_BYTES:
        size = <int32_t> kb_load32(at + 8)
        out.detail = size
        if size < MESSAGE_LEAST_SIZE:
            return MESSAGE_SIZE
        if left <= MESSAGE_MAGIC_POSITION:
            break
        if at[MESSAGE_MAGIC_POSITION] > 2:
            out.detail = <int8_t> at[MESSAGE_MAGIC_POSITION]
            return MESSAGE_MAGIC
        size += LOG_OVERHEAD_BYTES
        if left < size:
            break
        if size > max_entry_bytes:
            out.oversized = size
        elif parse_stored_header(at, left, &header) != HEADER_OK or stored_checksum(at, &header) != header.crc:
            return MESSAGE_CRC
        elif out.count == 0:
            out.magic = header.magic
            out.codec = header.attributes & COMPRESSION_MASK
        out.alike = out.alike and at[MESSAGE_MAGIC_POSITION] == out.magic
        out.count += 1
        out.size += size
        at += size
        left -= size
    return MESSAGE_OK


def scan_entries(data, int64_t max_entry_bytes):
    """(count, bytes, first magic, first codec, of one magic, bytes of one that is too large) of what a set consists of.

    Entries are messages and record batches, whose checksums are verified; the scan ends before an incomplete entry, or
    behind the first one of more than `max_entry_bytes`.  CorruptBatchError for damage.
    """
    cdef Py_buffer view
    cdef Entries found
    cdef int fault
    found.count = found.codec = 0
    found.magic = -1
    found.alike = True
    found.size = found.oversized = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len >= RELEASE_GIL_BYTES:
            with nogil:
                fault = scan(&found, <const uint8_t*> view.buf, view.len, max_entry_bytes)
        else:
            fault = scan(&found, <const uint8_t*> view.buf, view.len, max_entry_bytes)
    finally:
        PyBuffer_Release(&view)
    if fault == MESSAGE_SIZE:
        raise CorruptBatchError(f"Record size {found.detail} is less than the minimum record overhead (14)")
    if fault == MESSAGE_MAGIC:
        raise CorruptBatchError(f"Invalid magic found in record: {found.detail}")
    if fault:
        raise CorruptBatchError("Record is corrupt")
    return found.count, found.size, found.magic, found.codec, found.alike, found.oversized


def message_set_info(int magic, int32_t count, int64_t max_timestamp, bint append_time):
    """The header that messages to be appended would have together, as a batch."""
    cdef Header header
    header.base_offset = 0
    header.batch_length = 0
    header.partition_leader_epoch = -1
    header.magic = magic
    header.crc = 0
    header.attributes = TIMESTAMP_TYPE_MASK if append_time else 0
    header.last_offset_delta = count - 1
    header.base_timestamp = header.max_timestamp = max_timestamp
    header.producer_id = -1
    header.producer_epoch = -1
    header.base_sequence = -1
    header.records_count = count
    return make_info(&header, 0)


def number_messages(data, Py_ssize_t size, int64_t first):
    """Writes offsets from `first` on into the judged messages that `data` begins with; no checksum covers them."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Message message
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        cursor_init(&cursor, <const uint8_t*> view.buf, min(size, view.len))
        while next_message(&cursor, &message) == MESSAGE_OK:
            kb_store64(<uint8_t*> message.start, <uint64_t> first)
            first += 1
    finally:
        PyBuffer_Release(&view)


def stamp_messages(data, Py_ssize_t size, int64_t append_time):
    """Writes the kind of time (create with -1) and `append_time` into judged messages of magic 1, with their checksums.

    A message that has them is left alone.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Message message
    cdef uint8_t* start
    cdef int attributes
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        cursor_init(&cursor, <const uint8_t*> view.buf, min(size, view.len))
        while next_message(&cursor, &message) == MESSAGE_OK:
            start = <uint8_t*> message.start
            attributes = message.attributes & ~TIMESTAMP_TYPE_MASK
            if append_time >= 0:
                attributes |= TIMESTAMP_TYPE_MASK
                kb_store64(start + MESSAGE_FIELDS_POSITION, <uint64_t> append_time)
            elif attributes == message.attributes:
                continue
            start[MESSAGE_ATTRIBUTES_POSITION] = <uint8_t> attributes
            kb_store32(start + MESSAGE_CRC_POSITION, crc32(start + MESSAGE_CRC_START, message.size - MESSAGE_CRC_START))
    finally:
        PyBuffer_Release(&view)
