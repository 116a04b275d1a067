"""One v2 batch of records that the broker or a tool makes itself: for internal topics, command-line tools and tests."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from kbroker._fast.base.big_endian cimport kb_store16, kb_store32, kb_store64
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    CONTROL_MASK,
    LAST_OFFSET_DELTA_POSITION,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PARTITION_LEADER_EPOCH_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORDS_COUNT_POSITION,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
)
from kbroker._fast.records.record_codec cimport put_record

from kbroker._fast.records.record_batch import seal

cdef enum:
    NONE = -1           # no producer, epoch, sequence, timestamp or leader epoch
    MAGIC = 2


cdef class BatchBuilder:
    """`kbroker.records.batch.RecordBatchBuilder` without codecs."""

    cdef bytearray _batch
    cdef int _compression
    cdef object _level
    cdef int32_t _count
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp

    def __init__(self, int64_t base_offset=0, int compression=0, int64_t producer_id=NONE, int16_t producer_epoch=NONE,
                 int32_t base_sequence=NONE, *, bint is_transactional=False, bint is_control=False,
                 int32_t partition_leader_epoch=NONE, level=None):
        cdef uint8_t* data
        self._compression = compression
        self._level = level
        self._count = 0
        self._base_timestamp = self._max_timestamp = NONE
        # The header's place, with the records behind it.
        self._batch = PyByteArray_FromStringAndSize(NULL, RECORDS_POSITION)
        data = <uint8_t*> PyByteArray_AS_STRING(self._batch)
        memset(data, 0, RECORDS_POSITION)
        kb_store64(data + BASE_OFFSET_POSITION, <uint64_t> base_offset)
        kb_store32(data + PARTITION_LEADER_EPOCH_POSITION, <uint32_t> partition_leader_epoch)
        data[MAGIC_POSITION] = MAGIC
        data[ATTRIBUTES_POSITION + 1] = (TRANSACTIONAL_MASK if is_transactional else 0) | (
            CONTROL_MASK if is_control else 0)
        kb_store64(data + PRODUCER_ID_POSITION, <uint64_t> producer_id)
        kb_store16(data + PRODUCER_EPOCH_POSITION, <uint16_t> producer_epoch)
        kb_store32(data + BASE_SEQUENCE_POSITION, <uint32_t> base_sequence)

    cdef int _add(self, key, value, int64_t timestamp_ms, headers) except -1:
        cdef int64_t base = timestamp_ms if self._count == 0 else self._base_timestamp
        put_record(self._batch, timestamp_ms - base, self._count, key, value, headers)
        self._base_timestamp = base
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._count += 1
        return 0

    def append(self, key, value, int64_t timestamp_ms, headers=()):
        """Add a record.  The first one's time is the batch's base timestamp."""
        self._add(key, value, timestamp_ms, headers)

    def extend(self, records not None, Py_ssize_t begin, int64_t timestamp_ms, Py_ssize_t most_bytes):
        """Add records of one time, from number `begin` on, until the batch has `most_bytes`; the number of the next."""
        cdef Py_ssize_t at = begin
        cdef Py_ssize_t end = len(records)
        while at < end:
            key, value = records[at]
            self._add(key, value, timestamp_ms, None)
            at += 1
            if PyByteArray_GET_SIZE(self._batch) >= most_bytes:
                break
        return at

    @property
    def count(self):
        """How many records it holds."""
        return self._count

    @property
    def size_bytes(self):
        """The size of the batch so far, before compression."""
        return PyByteArray_GET_SIZE(self._batch)

    def compressed(self, codec, payload, level):
        """The records by a codec other than 0."""
        raise NotImplementedError

    def build(self):
        """The batch, header and CRC included.  ValueError without a record."""
        cdef bytearray batch = self._batch
        cdef uint8_t* data
        if self._count == 0:
            raise ValueError("a batch needs at least one record")
        data = <uint8_t*> PyByteArray_AS_STRING(batch)
        kb_store32(data + LAST_OFFSET_DELTA_POSITION, <uint32_t> (self._count - 1))
        kb_store64(data + BASE_TIMESTAMP_POSITION, <uint64_t> self._base_timestamp)
        kb_store64(data + MAX_TIMESTAMP_POSITION, <uint64_t> self._max_timestamp)
        kb_store32(data + RECORDS_COUNT_POSITION, <uint32_t> self._count)
        if self._compression:
            batch = batch[:RECORDS_POSITION] + self.compressed(
                self._compression, memoryview(batch)[RECORDS_POSITION:], self._level)
        else:
            batch = bytearray(batch)
        seal(batch, self._compression)
        return batch
