"""Record batches straight into columns in Arrow's layout: no Python object per record.

    columns = RecordColumns(start, stop, decompress)
    columns.begin(frame)                    # whole batches, the last of them perhaps cut off
    while columns.fill():                   # True: as many rows as the limits allow; take them and go on
        use(columns.take())
    use(columns.take())                     # what is left of this frame; or begin the next and let rows gather
    columns.next_offset                     # where to read on

Rows are the records with start <= offset < stop, in order.  Control batches and the records of aborted transactions
(`set_aborted`, as a fetch with read_committed lists them) make no rows.  The size, magic and CRC of each batch are
checked, and that each field lies within its record and each record within its batch: damaged bytes raise a `BatchError`
and never cause a read outside of the frame.  A batch that is cut off at the end of the frame is left alone: `position`
says where it begins.

Memory: at most `max_bytes` of records and `max_rows` rows (but one record at least) and one decompressed batch.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.records.batch_info cimport HEADER_OK, HEADER_TRUNCATED, Header, header_error, parse_header
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_MASK,
    LOG_OVERHEAD_BYTES,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
)
from kbroker._fast.base.column_buffer cimport binary_free, room_free, room_put32, take_binary, take_room
from kbroker._fast.base.crc32c cimport crc32c_update
from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_take, kb_load16
from kbroker._fast.records.record_rows cimport (
    Batch,
    FAULT_COUNT,
    FAULT_MEMORY,
    FAULT_OFFSET,
    FAULT_TIMESTAMP,
    Rows,
    TOOK_ALL,
    TOOK_FULL,
    TOOK_STOP,
    WANT_HEADERS,
    WANT_KEYS,
    WANT_TIMESTAMPS,
    WANT_VALUES,
    take_records,
)
from kbroker._fast.base.varint cimport short_varint, short_varlong

from kbroker._fast.records.batch_info import CorruptBatchError, InvalidRecordsError, OldMagicError


cdef enum:
    MAX_COLUMN_BYTES = 1 << 30
    ABORT_MARKER = 0

KEYS = WANT_KEYS
VALUES = WANT_VALUES
TIMESTAMPS = WANT_TIMESTAMPS
HEADERS = WANT_HEADERS


cdef class RecordColumns:
    """See the module's text.  `decompress(codec, view)` gives a batch's records; `wants` is KEYS | VALUES | …"""

    cdef Rows rows
    cdef Batch batch
    cdef Py_buffer frame
    cdef Py_buffer payload
    cdef bint has_frame, has_payload
    cdef Py_ssize_t end, max_rows, max_bytes
    cdef int wants
    cdef object decompress
    cdef object view
    cdef list aborted
    cdef set aborted_now
    cdef int64_t stop
    cdef readonly int64_t next_offset
    cdef readonly Py_ssize_t position
    cdef readonly bint done

    def __cinit__(
        self,
        int64_t start,
        int64_t stop,
        decompress,
        *,
        int wants=WANT_KEYS | WANT_VALUES | WANT_TIMESTAMPS,
        Py_ssize_t max_rows=65536,
        Py_ssize_t max_bytes=8 << 20,
    ):
        if max_rows < 1 or not 1 <= max_bytes <= MAX_COLUMN_BYTES:
            raise ValueError(f"limits of {max_rows} rows and {max_bytes} bytes (1 to {MAX_COLUMN_BYTES})")
        self.next_offset = start
        self.stop = stop
        self.done = start >= stop
        self.decompress = decompress
        self.wants = wants
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.aborted = []
        self.aborted_now = set()

    def __dealloc__(self):
        room_free(&self.rows.offset)
        room_free(&self.rows.timestamp)
        room_free(&self.rows.timestamp_type)
        room_free(&self.rows.header_offsets)
        room_free(&self.rows.header_valid)
        binary_free(&self.rows.key)
        binary_free(&self.rows.value)
        binary_free(&self.rows.header_key)
        binary_free(&self.rows.header_value)
        self._release()

    @property
    def count(self):
        """Rows gathered and not taken yet."""
        return self.rows.count

    def set_aborted(self, transactions):
        """The aborted transactions of the frames to come: (producer_id, first_offset), in any order."""
        self.aborted = sorted(((first, producer_id) for producer_id, first in transactions), reverse=True)
        self.aborted_now = set()

    def begin(self, frame, Py_ssize_t pos=0, end=None):
        """Takes up the batches in frame[pos:end], which must not change until they are read."""
        cdef Py_ssize_t stop
        self._release()
        PyObject_GetBuffer(frame, &self.frame, PyBUF_SIMPLE)
        self.has_frame = True
        stop = self.frame.len if end is None else end
        if not 0 <= pos <= stop <= self.frame.len:
            self._release()
            raise ValueError(f"positions {pos} to {stop} are outside of a buffer of {self.frame.len} bytes")
        self.view = memoryview(frame)
        self.position = pos
        self.end = stop

    def fill(self):
        """Reads on; True when the limits are reached before the frame's end.  BatchError for damaged bytes."""
        cdef int took
        if not self.has_frame:
            return False
        while True:
            if not self.batch.open and not self._open_batch():
                self._release()
                return False
            with nogil:
                took = take_records(
                    &self.rows, &self.batch, self.next_offset, self.stop, self.wants, self.max_rows, self.max_bytes
                )
            if took == TOOK_FULL:
                return True
            if took == TOOK_STOP:
                self.done = True
                self.next_offset = self.stop
                self._release()
                return False
            if took != TOOK_ALL:
                self._fail(took)
            self._close_batch()
            self._pass_batch()
            self.done = self.next_offset >= self.stop

    cdef int _pass_batch(self) except -1:
        cdef const Header* header = &self.batch.header
        self.next_offset = max(self.next_offset, header.base_offset + header.last_offset_delta + 1)
        self.position += header.batch_length + <Py_ssize_t>LOG_OVERHEAD_BYTES
        return 0

    cdef bint _open_batch(self) except -1:
        """Finds the next batch that has rows to give; False at the frame's or the range's end."""
        cdef const uint8_t* data
        cdef Header* header = &self.batch.header
        cdef int fault
        while not self.done:
            data = <const uint8_t*>self.frame.buf + self.position
            fault = parse_header(data, self.end - self.position, header)
            if fault == HEADER_TRUNCATED:
                return False
            if fault != HEADER_OK:
                raise self._described(header_error(fault, header, self.end - self.position))
            if header.last_offset_delta < 0 or header.records_count < 0 or header.base_offset < 0:
                raise self._described(InvalidRecordsError("the batch's header has a negative count or offset"))
            if header.base_offset > INT64_MAX - header.last_offset_delta - 1:
                raise self._described(InvalidRecordsError("the batch's last offset is beyond 63 bits"))
            if header.base_offset >= self.stop:
                self.done = True
                return False
            if header.base_offset + header.last_offset_delta >= self.next_offset:
                self._validate_crc(data)
                if not self._is_left_out(data):
                    self._open_records(data)
                    return True
            self._pass_batch()
            if self.next_offset >= self.stop:
                self.done = True
        return False

    cdef int _validate_crc(self, const uint8_t* data) except -1:
        cdef uint32_t crc
        cdef size_t size = <size_t>(self.batch.header.batch_length - (ATTRIBUTES_POSITION - LOG_OVERHEAD_BYTES))
        with nogil:
            crc = crc32c_update(0, data + ATTRIBUTES_POSITION, size)
        if crc != self.batch.header.crc:
            raise self._described(
                CorruptBatchError(f"Record is corrupt (stored crc = {self.batch.header.crc}, computed crc = {crc})")
            )
        return 0

    cdef bint _is_left_out(self, const uint8_t* data) except -1:
        """Whether the batch is a marker or belongs to an aborted transaction (KIP-98)."""
        cdef int attributes = self.batch.header.attributes
        cdef int64_t producer_id = self.batch.header.producer_id
        cdef int64_t last = self.batch.header.base_offset + self.batch.header.last_offset_delta
        while self.aborted and self.aborted[len(self.aborted) - 1][0] <= last:
            self.aborted_now.add(self.aborted.pop()[1])
        if attributes & CONTROL_MASK:
            if self.aborted_now and producer_id in self.aborted_now and self._marker_type(data) == ABORT_MARKER:
                self.aborted_now.discard(producer_id)
            return True
        return attributes & TRANSACTIONAL_MASK and self.aborted_now and producer_id in self.aborted_now

    cdef int _marker_type(self, const uint8_t* data) except -2:
        """The type of a control batch's record: its key is a version and a type, int16 each."""
        cdef Cursor cursor
        cdef int32_t size
        cdef const uint8_t* key
        cursor_init(&cursor, data + RECORDS_POSITION, self.batch.header.batch_length - (RECORDS_POSITION - 12))
        short_varint(&cursor)
        cursor_take(&cursor, 1)
        short_varlong(&cursor)
        short_varint(&cursor)
        size = short_varint(&cursor)
        key = cursor_take(&cursor, size)
        if key == NULL or size < 4:
            raise self._described(InvalidRecordsError("a control record without a type"))
        return <int>kb_load16(key + 2)

    cdef int _open_records(self, const uint8_t* data) except -1:
        cdef Py_ssize_t size = self.batch.header.batch_length - (RECORDS_POSITION - LOG_OVERHEAD_BYTES)
        cdef Py_ssize_t at
        cdef int codec = self.batch.header.attributes & COMPRESSION_MASK
        if codec:
            at = self.position + RECORDS_POSITION
            try:
                records = self.decompress(codec, self.view[at:at + size])
            except ValueError as error:
                raise self._described(InvalidRecordsError(f"its records cannot be decompressed: {error}")) from error
            PyObject_GetBuffer(records, &self.payload, PyBUF_SIMPLE)
            self.has_payload = True
            cursor_init(&self.batch.cursor, <const uint8_t*>self.payload.buf, self.payload.len)
        else:
            cursor_init(&self.batch.cursor, data + RECORDS_POSITION, size)
        self.batch.left = self.batch.header.records_count
        self.batch.last = -1
        self.batch.open = True
        return 0

    cdef int _close_batch(self) except -1:
        self.batch.open = False
        if self.has_payload:
            PyBuffer_Release(&self.payload)
            self.has_payload = False
        return 0

    cdef int _release(self) except -1:
        self._close_batch()
        if self.has_frame:
            PyBuffer_Release(&self.frame)
            self.has_frame = False
        self.view = None
        return 0

    cdef object _described(self, error):
        """The error, its message with the place in front."""
        header = &self.batch.header
        if isinstance(error, (CorruptBatchError, OldMagicError)):
            return type(error)(f"{error}, at byte {self.position}, where offset {self.next_offset} should be")
        return type(error)(f"{error}, in the batch at byte {self.position}, base offset {header.base_offset}")

    cdef int _fail(self, int took) except -1:
        if took == FAULT_MEMORY:
            raise MemoryError
        if took == FAULT_OFFSET:
            text = f"record after offset {self.batch.last} has an offset that is not after it, or outside of the batch"
        elif took == FAULT_COUNT:
            text = f"there are bytes after the {self.batch.header.records_count} records declared"
        elif took == FAULT_TIMESTAMP:
            text = (
                f"the record at offset {self.batch.last} has a timestamp that no timestamp column can hold; "
                "read the topic without its timestamp column"
            )
        else:
            text = f"the record after offset {self.batch.last} is malformed: a field ends outside of it"
        error = self._described(InvalidRecordsError(text))
        self._release()
        raise error

    def take(self):
        """(rows, offset, timestamp or None, timestamp_type or None, key or None, value or None, headers or None).

        Buffers in Arrow's layout: int64 offsets, int64 microseconds, int32 types (0 producer's, 1 append time); a key
        or value is (validity or None, int32 offsets, bytes); headers are (validity or None, int32 list offsets, keys,
        values, whether some key goes beyond ASCII).  The columns are the caller's; the next rows go into new ones.
        """
        cdef Rows* rows = &self.rows
        cdef object timestamp = None, timestamp_type = None, key = None, value = None, headers = None, valid = None
        cdef Py_ssize_t count = rows.count
        offset = take_room(&rows.offset)
        if self.wants & WANT_TIMESTAMPS:
            timestamp = take_room(&rows.timestamp)
            timestamp_type = take_room(&rows.timestamp_type)
        if self.wants & WANT_KEYS:
            key = take_binary(&rows.key)
        if self.wants & WANT_VALUES:
            value = take_binary(&rows.value)
        if self.wants & WANT_HEADERS:
            if rows.headerless:
                valid = take_room(&rows.header_valid)
            rows.header_valid.size = 0
            if count == 0 and not room_put32(&rows.header_offsets, 0):
                raise MemoryError
            names = take_binary(&rows.header_key)
            contents = take_binary(&rows.header_value)
            headers = valid, take_room(&rows.header_offsets), names, contents, bool(rows.header_key_beyond_ascii)
            rows.header_key_beyond_ascii = False
            rows.headerless = 0
        rows.count = rows.bytes = 0
        return count, offset, timestamp, timestamp_type, key, value, headers
