"""The header of a v2 batch as a value, and the errors that say what is wrong with a batch.

`record_batch` reads, judges and writes batches; here is what it and the other readers of batches share.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t

from kbroker._fast.base.cursor cimport kb_load16, kb_load32, kb_load64
from kbroker._fast.records.layout cimport (
    BASE_OFFSET_POSITION,
    BATCH_LENGTH_POSITION,
    PARTITION_LEADER_EPOCH_POSITION,
    MAGIC_POSITION,
    CRC_POSITION,
    ATTRIBUTES_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    BASE_TIMESTAMP_POSITION,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_ID_POSITION,
    PRODUCER_EPOCH_POSITION,
    BASE_SEQUENCE_POSITION,
    RECORDS_COUNT_POSITION,
    RECORDS_POSITION,
    HEADER_UP_TO_MAGIC_BYTES,
    LOG_OVERHEAD_BYTES,
    MIN_BATCH_LENGTH,
    COMPRESSION_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
)
from kbroker._fast.records.record_walk cimport (
    WALK_HEADERS_NEGATIVE,
    WALK_HEADERS_TOO_MANY,
    WALK_HEADER_KEY_NEGATIVE,
    WALK_LEFT_OVER,
    WALK_NEGATIVE_LENGTH,
    WALK_OFFSET_DELTA,
    WALK_PREMATURE_END,
    WALK_RECORD_OVERRUN,
    WALK_RECORD_SIZE,
    Walk,
)


class BatchError(ValueError):
    """Bytes that are not a well-formed batch."""


class CorruptBatchError(BatchError):
    """Size, magic or checksum is wrong: the bytes were damaged or never were a batch."""


class TruncatedBatchError(CorruptBatchError):
    """The buffer ends before the batch does."""


class OldMagicError(BatchError):
    """A message of format 0 or 1."""


class InvalidRecordsError(BatchError):
    """The checksum holds, but header or records contradict themselves.  `batch_level`: the header does."""

    batch_level = False


class InvalidBatchHeaderError(InvalidRecordsError):
    batch_level = True


@cython.final
@cython.freelist(64)
cdef class BatchInfo:
    """A batch's header, and after a walk what its records hold.  A value: nothing of the buffer is kept."""

    @property
    def size_in_bytes(self):
        return <int64_t>self.header.batch_length + LOG_OVERHEAD_BYTES

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def last_offset_delta(self):
        return self.header.last_offset_delta

    @property
    def partition_leader_epoch(self):
        return self.header.partition_leader_epoch

    @property
    def magic(self):
        return self.header.magic

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """base_sequence plus last_offset_delta, going on at 0 after the largest int32; -1 without a sequence."""
        cdef int64_t last
        if self.header.base_sequence < 0:
            return -1
        last = <int64_t>self.header.base_sequence + self.header.last_offset_delta
        return last if last <= INT32_MAX else last - INT32_MAX - 1

    @property
    def records_count(self):
        return self.header.records_count

    @property
    def compression(self):
        return self.header.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self):
        """0: the producer's time, 1: the time of the append."""
        return 1 if self.header.attributes & TIMESTAMP_TYPE_MASK else 0

    @property
    def is_transactional(self):
        return (self.header.attributes & TRANSACTIONAL_MASK) != 0

    @property
    def is_control(self):
        return (self.header.attributes & CONTROL_MASK) != 0

    @property
    def has_delete_horizon(self):
        return (self.header.attributes & DELETE_HORIZON_MASK) != 0

    @property
    def offset_of_max_timestamp(self):
        """Offset of the first record with the largest timestamp; the last offset without a walk or with the append
        time."""
        if not self.walked or self.header.attributes & TIMESTAMP_TYPE_MASK:
            return self.header.base_offset + self.header.last_offset_delta
        return self.header.base_offset + self.max_timestamp_index

    cdef void take_walk(self, const Walk* walk) noexcept:
        self.walked = True
        self.keyless_count = walk.keyless_count
        self.min_record_timestamp = walk.min_timestamp
        self.max_record_timestamp = walk.max_timestamp
        self.max_timestamp_index = walk.max_index

    def __repr__(self):
        return (
            f"BatchInfo(position={self.position}, size={self.size_in_bytes}, offsets={self.base_offset}.."
            f"{self.last_offset}, records={self.records_count}, attributes={self.attributes:#x})"
        )


cdef BatchInfo make_info(const Header* header, Py_ssize_t position):
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    info.header = header[0]
    info.position = position
    info.walked = False
    info.keyless_count = 0
    info.min_record_timestamp = INT64_MAX
    info.max_record_timestamp = -1
    info.max_timestamp_index = 0
    return info


cdef int parse_header(const uint8_t* data, Py_ssize_t left, Header* out) noexcept nogil:
    """Reads the header at `data`, of which `left` bytes may be read; says a HeaderFault."""
    out.batch_length = 0
    out.magic = -1
    if left < HEADER_UP_TO_MAGIC_BYTES:
        if left >= LOG_OVERHEAD_BYTES:
            out.batch_length = <int32_t>kb_load32(data + BATCH_LENGTH_POSITION)
            if out.batch_length < MIN_BATCH_LENGTH:
                return HEADER_TOO_SMALL
        return HEADER_TRUNCATED
    out.batch_length = <int32_t>kb_load32(data + BATCH_LENGTH_POSITION)
    if out.batch_length < MIN_BATCH_LENGTH:
        return HEADER_TOO_SMALL
    out.magic = <int8_t>data[MAGIC_POSITION]
    if out.magic < 0 or out.magic > 2:
        return HEADER_MAGIC
    if out.batch_length > left - LOG_OVERHEAD_BYTES:
        return HEADER_TRUNCATED
    if out.magic < 2:
        return HEADER_OLD_MAGIC
    if out.batch_length < RECORDS_POSITION - LOG_OVERHEAD_BYTES:
        return HEADER_OVERHEAD
    out.base_offset = <int64_t>kb_load64(data + BASE_OFFSET_POSITION)
    out.partition_leader_epoch = <int32_t>kb_load32(data + PARTITION_LEADER_EPOCH_POSITION)
    out.crc = kb_load32(data + CRC_POSITION)
    out.attributes = <int16_t>kb_load16(data + ATTRIBUTES_POSITION)
    out.last_offset_delta = <int32_t>kb_load32(data + LAST_OFFSET_DELTA_POSITION)
    out.base_timestamp = <int64_t>kb_load64(data + BASE_TIMESTAMP_POSITION)
    out.max_timestamp = <int64_t>kb_load64(data + MAX_TIMESTAMP_POSITION)
    out.producer_id = <int64_t>kb_load64(data + PRODUCER_ID_POSITION)
    out.producer_epoch = <int16_t>kb_load16(data + PRODUCER_EPOCH_POSITION)
    out.base_sequence = <int32_t>kb_load32(data + BASE_SEQUENCE_POSITION)
    out.records_count = <int32_t>kb_load32(data + RECORDS_COUNT_POSITION)
    return HEADER_OK


cdef object header_error(int fault, const Header* header, Py_ssize_t left):
    if fault == HEADER_TRUNCATED:
        return TruncatedBatchError(
            f"a batch of {header.batch_length + <int64_t>LOG_OVERHEAD_BYTES} bytes has only {left} left"
        )
    if fault == HEADER_TOO_SMALL:
        return CorruptBatchError(
            f"Record size {header.batch_length} is less than the minimum record overhead ({MIN_BATCH_LENGTH})"
        )
    if fault == HEADER_MAGIC:
        return CorruptBatchError(f"Invalid magic found in record: {header.magic}")
    if fault == HEADER_OLD_MAGIC:
        return OldMagicError(f"a message of format {header.magic}")
    return CorruptBatchError(
        f"Record batch is corrupt (the size {header.batch_length + <int64_t>LOG_OVERHEAD_BYTES} is smaller than the "
        f"minimum allowed overhead {RECORDS_POSITION})"
    )


cdef object walk_error(const Walk* walk):
    cdef int fault = walk.fault
    if fault == WALK_PREMATURE_END:
        return InvalidRecordsError("Incorrect declared batch size, premature EOF reached")
    if fault == WALK_LEFT_OVER:
        return InvalidRecordsError("Incorrect declared batch size, records still remaining in file")
    if fault == WALK_RECORD_OVERRUN:
        return InvalidRecordsError(
            f"Invalid record size: expected {walk.detail} bytes in record payload, but instead the buffer has only "
            f"{walk.other} remaining bytes."
        )
    if fault == WALK_RECORD_SIZE:
        return InvalidRecordsError(
            f"Invalid record size: expected to read {walk.detail} bytes in record payload, but instead read "
            f"{walk.other}"
        )
    if fault == WALK_OFFSET_DELTA:
        return InvalidRecordsError(
            f"Record {walk.other} of the batch has offset delta {walk.detail}, expected {walk.other}"
        )
    if fault == WALK_NEGATIVE_LENGTH:
        return InvalidRecordsError(f"Found invalid length {walk.detail} in record {walk.index}")
    if fault == WALK_HEADERS_NEGATIVE:
        return InvalidRecordsError(f"Found invalid number of record headers {walk.detail}")
    if fault == WALK_HEADERS_TOO_MANY:
        return InvalidRecordsError(
            f"Found invalid number of record headers. {walk.detail} is larger than the remaining size of the buffer"
        )
    if fault == WALK_HEADER_KEY_NEGATIVE:
        return InvalidRecordsError(f"Invalid negative header key size {walk.detail}")
    return InvalidRecordsError("Found invalid record structure")
