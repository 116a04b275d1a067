"""Headers of what lies in a segment: record batches, and messages of the formats before them (magic 0 and 1).

    offset int64 | size int32 | crc uint32 (CRC-32 from magic on) | magic int8 | attributes int8 |
    timestamp int64 (magic 1 only) | key length int32 | key | value length int32 | value

A message with a codec in its attributes is a wrapper: its value holds messages, its offset is that of the last one.
Each message and wrapper counts as a batch whose last offset is its own.  A wrapper's base offset is known from its
messages only, so the header gives its last offset as the base offset, too.  Old messages have no epoch, no producer
and, with magic 0, no timestamp.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker._fast.records.batch_info cimport (
    HEADER_OK,
    HEADER_OLD_MAGIC,
    HEADER_TOO_SMALL,
    Header,
    header_error,
    make_info,
    parse_header,
)
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    LOG_OVERHEAD_BYTES,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_CRC_START,
    MESSAGE_FIELDS_POSITION,
    TIMESTAMP_TYPE_MASK,
)
from kbroker._fast.base.crc32c cimport crc32c_update
from kbroker._fast.base.cursor cimport kb_load32, kb_load64

from kbroker._fast.records.batch_info import CorruptBatchError

cdef enum:
    V1_LEAST_BYTES = 34

# Of CRC-32 (zlib's), eight bytes at a time.
cdef uint32_t TABLES[8][256]


cdef void fill_tables() noexcept:
    cdef uint32_t crc
    cdef int at, _bit, row
    for at in range(256):
        crc = <uint32_t>at
        for _bit in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        TABLES[0][at] = crc
    for at in range(256):
        for row in range(1, 8):
            TABLES[row][at] = (TABLES[row - 1][at] >> 8) ^ TABLES[0][TABLES[row - 1][at] & 0xFF]


fill_tables()


cdef uint32_t crc32(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef int64_t at = 0
    while at + 8 <= size:
        crc ^= data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        crc = (
            TABLES[7][crc & 0xFF] ^ TABLES[6][(crc >> 8) & 0xFF] ^ TABLES[5][(crc >> 16) & 0xFF] ^ TABLES[4][crc >> 24]
            ^ TABLES[3][data[at + 4]] ^ TABLES[2][data[at + 5]] ^ TABLES[1][data[at + 6]] ^ TABLES[0][data[at + 7]]
        )
        at += 8
    while at < size:
        crc = (crc >> 8) ^ TABLES[0][(crc ^ data[at]) & 0xFF]
        at += 1
    return ~crc


cdef int parse_stored_header(const uint8_t* data, Py_ssize_t left, Header* out) noexcept nogil:
    """As `parse_header`, but a message of format 0 or 1 is good, too."""
    cdef int fault = parse_header(data, left, out)
    if fault != HEADER_OLD_MAGIC:
        return fault
    if out.magic == 1 and out.batch_length < V1_LEAST_BYTES - LOG_OVERHEAD_BYTES:
        return HEADER_TOO_SMALL
    out.base_offset = <int64_t>kb_load64(data)
    out.partition_leader_epoch = -1
    out.crc = kb_load32(data + MESSAGE_CRC_POSITION)
    out.attributes = data[MESSAGE_ATTRIBUTES_POSITION] & (COMPRESSION_MASK | TIMESTAMP_TYPE_MASK)
    out.last_offset_delta = 0
    out.max_timestamp = <int64_t>kb_load64(data + MESSAGE_FIELDS_POSITION) if out.magic == 1 else -1
    out.base_timestamp = out.max_timestamp
    out.producer_id = -1
    out.producer_epoch = -1
    out.base_sequence = -1
    out.records_count = -1
    return HEADER_OK


cdef uint32_t stored_checksum(const uint8_t* data, const Header* header) noexcept nogil:
    """What `header.crc` should be, from the whole batch at `data`."""
    cdef int64_t size = <int64_t>header.batch_length + LOG_OVERHEAD_BYTES
    if header.magic < 2:
        return crc32(data + MESSAGE_CRC_START, size - MESSAGE_CRC_START)
    return crc32c_update(0, data + ATTRIBUTES_POSITION, <size_t>(size - ATTRIBUTES_POSITION))


def read_stored_header(data, Py_ssize_t position=0, end=None, *, bint check_crc=False):
    """The header of the batch, or old message, at `position` of `data`, which ends at `end`.

    TruncatedBatchError when it is not there whole, CorruptBatchError when it is none, or has another checksum.
    """
    cdef Py_buffer view
    cdef Header header
    cdef int fault
    cdef Py_ssize_t last
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        last = view.len if end is None else end
        if position < 0 or last < position or last > view.len:
            raise ValueError(f"positions {position} to {last} are outside of {view.len} bytes")
        fault = parse_stored_header(<const uint8_t*>view.buf + position, last - position, &header)
        if fault != HEADER_OK:
            raise header_error(fault, &header, last - position)
        if check_crc:
            crc = stored_checksum(<const uint8_t*>view.buf + position, &header)
            if crc != header.crc:
                raise CorruptBatchError(f"Record is corrupt (stored crc = {header.crc}, computed crc = {crc})")
        return make_info(&header, position)
    finally:
        PyBuffer_Release(&view)
