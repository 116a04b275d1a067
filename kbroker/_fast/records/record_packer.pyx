"""Rows of Arrow columns packed into the records of a batch (magic 2), with no Python object per record.

A column of bytes is passed as (validity or None, offsets, data, first row): Arrow's buffers, the offsets as int32, and
the index of the array's first row in these buffers.  Every row's place is checked against its buffer before it is read.

Source: the record's layout in KIP-98; the keyed partitioner is the one of Kafka's own clients (murmur2).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kbroker._fast.base.column_buffer cimport room_free, room_reserve
from kbroker._fast.base.varint cimport MAX_VARINT_BYTES, MAX_VARLONG_BYTES, put_varlong, varlong_size

cdef enum:
    PACKED = 1
    FULL = 0
    BAD_COLUMN = -1
    NO_MEMORY = -2
    TOO_LARGE = -3
    NO_HEADER_KEY = -4
    SEED = 0x9747b28c
    MIX = 0x5bd1e995


cdef inline uint8_t* put_bytes(uint8_t* out, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    out += put_varlong(out, size)
    if size > 0:
        memcpy(out, start, <size_t>size)
        out += size
    return out


cdef inline Py_ssize_t sized(Py_ssize_t size) noexcept nogil:
    return varlong_size(size) + (size if size > 0 else 0)


cdef uint32_t murmur2(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t hash = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t word
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        memcpy(&word, data + at, 4)
        word *= <uint32_t>MIX
        word ^= word >> 24
        word *= <uint32_t>MIX
        hash *= <uint32_t>MIX
        hash ^= word
        at += 4
    if size - at == 3:
        hash ^= <uint32_t>data[at + 2] << 16
    if size - at >= 2:
        hash ^= <uint32_t>data[at + 1] << 8
    if size - at >= 1:
        hash ^= data[at]
        hash *= <uint32_t>MIX
    hash ^= hash >> 13
    hash *= <uint32_t>MIX
    hash ^= hash >> 15
    return hash


cdef class RowColumns:
    """The columns of one Arrow batch of `rows` rows; holds the buffers.

    keys, values: a column of bytes, or None for one that is null throughout
    timestamps:   int64 milliseconds, one per row, or None
    headers:      (validity or None, list offsets, first list, rows of keys, keys, values) or None
    """

    def __init__(self, Py_ssize_t rows, tuple keys, tuple values, timestamps=None, tuple headers=None):
        if rows < 0 or self.view_count:
            raise ValueError("a batch has no fewer than 0 rows, and is described once")
        self.rows = rows
        if keys is not None:
            self._hold_bytes(&self.keys, keys, rows)
        if values is not None:
            self._hold_bytes(&self.values, values, rows)
        if timestamps is not None:
            self.timestamps = <const int64_t*>self._hold(timestamps, rows * 8)
        if headers is not None:
            valid, offsets, first, self.header_rows, header_keys, header_values = headers
            self.header_shift = first
            if self.header_shift < 0 or self.header_rows < 0:
                raise ValueError("a column begins at row 0 or later")
            self.header_offsets = <const int32_t*>self._hold(offsets, (self.header_shift + rows + 1) * 4)
            if valid is not None:
                self.header_valid = <const uint8_t*>self._hold(valid, (self.header_shift + rows + 7) >> 3)
            self._hold_bytes(&self.header_keys, header_keys, self.header_rows)
            self._hold_bytes(&self.header_values, header_values, self.header_rows)

    def __dealloc__(self):
        cdef int at
        for at in range(self.view_count):
            PyBuffer_Release(&self.views[at])

    cdef const void* _hold(self, object buffer, Py_ssize_t needed_bytes) except? NULL:
        cdef Py_buffer* view
        if self.view_count == MAX_VIEWS:
            raise ValueError("a batch has too many buffers")
        view = &self.views[self.view_count]
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.view_count += 1
        if view.len < needed_bytes:
            raise ValueError(f"a column's buffer has {view.len} bytes, {needed_bytes} are needed")
        return view.buf

    cdef int _hold_bytes(self, BytesColumn* column, tuple parts, Py_ssize_t rows) except -1:
        valid, offsets, data, first = parts
        column.shift = first
        if column.shift < 0:
            raise ValueError("a column begins at row 0 or later")
        if data is not None:
            column.data = <const uint8_t*>self._hold(data, 0)
            column.data_bytes = self.views[self.view_count - 1].len
        if valid is not None:
            column.valid = <const uint8_t*>self._hold(valid, (column.shift + rows + 7) >> 3)
        if rows > 0:
            # Arrow may leave the offsets of an empty column out.
            column.offsets = <const int32_t*>self._hold(offsets, (column.shift + rows + 1) * 4)
        return 0

    def fill_partitions(self, int32_t[::1] partitions, int32_t partition_count):
        """Where `partitions` is -1 and the row has a key, the partition that Kafka's clients give this key."""
        cdef Py_ssize_t row, size
        cdef const uint8_t* start = NULL
        if partitions.shape[0] != self.rows or partition_count < 1:
            raise ValueError(f"{partitions.shape[0]} partitions for {self.rows} rows of {partition_count} partitions")
        for row in range(self.rows):
            if partitions[row] != -1:
                continue
            size = locate(&self.keys, row, &start)
            if size < NULL_BYTES:
                raise ValueError(f"row {row}: the key lies outside of its column")
            if size >= 0:
                partitions[row] = <int32_t>((murmur2(start, size) & 0x7FFFFFFF) % <uint32_t>partition_count)


cdef Py_ssize_t headers_size(RowColumns columns, Py_ssize_t row, Py_ssize_t* first, Py_ssize_t* count) noexcept nogil:
    """Bytes of a row's headers without their count; negative for what is wrong."""
    cdef Py_ssize_t at, size
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t last
    cdef const uint8_t* start = NULL
    first[0] = count[0] = 0
    if columns.header_offsets == NULL or not is_valid(columns.header_valid, columns.header_shift + row):
        return 0
    first[0] = columns.header_offsets[columns.header_shift + row]
    last = columns.header_offsets[columns.header_shift + row + 1]
    if first[0] < 0 or last < first[0] or last > columns.header_rows:
        return BAD_COLUMN
    count[0] = last - first[0]
    for at in range(first[0], last):
        size = locate(&columns.header_keys, at, &start)
        if size < 0:
            return NO_HEADER_KEY if size == NULL_BYTES else BAD_COLUMN
        total += sized(size)
        size = locate(&columns.header_values, at, &start)
        if size < NULL_BYTES:
            return BAD_COLUMN
        total += sized(size)
    return total


cdef class BatchPacker:
    """The records of one batch while it fills, up to about `limit_bytes`; the first record fits at any size."""

    def __init__(self, Py_ssize_t limit_bytes):
        self.limit_bytes = limit_bytes

    def __dealloc__(self):
        room_free(&self.room)

    @property
    def size_bytes(self) -> int:
        return self.room.size

    def append(self, RowColumns columns not None, const int64_t[::1] rows, Py_ssize_t at, int64_t now_ms):
        """Packs the rows named by `rows` from index `at` on; the index of the first that did not fit any more."""
        cdef int outcome = PACKED
        if at < 0:
            raise IndexError(at)
        while at < rows.shape[0]:
            if not 0 <= rows[at] < columns.rows:
                raise IndexError(f"row {rows[at]} of {columns.rows}")
            outcome = self._pack(columns, rows[at], now_ms)
            if outcome != PACKED:
                break
            at += 1
        if outcome == BAD_COLUMN:
            raise ValueError(f"row {rows[at]} lies outside of its column")
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == TOO_LARGE:
            raise ValueError(f"row {rows[at]} is larger than a record can be")
        if outcome == NO_HEADER_KEY:
            raise ValueError(f"row {rows[at]} has a header without a key")
        return at

    def take(self, Py_ssize_t room=0) -> bytearray:
        """The packed records behind `room` bytes for a header; the packer starts anew.

        `base_timestamp` and `max_timestamp` stay until the next row.
        """
        if room < 0:
            raise ValueError(f"a header cannot have {room} bytes")
        taken = PyByteArray_FromStringAndSize(NULL, room + self.room.size)
        memset(PyByteArray_AS_STRING(taken), 0, room)
        memcpy(PyByteArray_AS_STRING(taken) + room, self.room.data, self.room.size)
        self.room.size = 0
        self.count = 0
        return taken

    cdef int _pack(self, RowColumns columns, Py_ssize_t row, int64_t now_ms) noexcept:
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef const uint8_t* start = NULL
        cdef Py_ssize_t key_size = locate(&columns.keys, row, &key)
        cdef Py_ssize_t value_size = locate(&columns.values, row, &value)
        cdef Py_ssize_t first, count, at, body, size
        cdef Py_ssize_t headers = headers_size(columns, row, &first, &count)
        cdef int64_t timestamp = columns.timestamps[row] if columns.timestamps != NULL else now_ms
        cdef int64_t delta = timestamp - self.base_timestamp if self.count else 0
        cdef uint8_t* out
        if key_size < NULL_BYTES or value_size < NULL_BYTES:
            return BAD_COLUMN
        if headers < 0:
            return <int>headers
        body = 1 + varlong_size(delta) + varlong_size(self.count) + sized(key_size) + sized(value_size)
        body += varlong_size(count) + headers
        if body > 0x7FFFFFF0:
            return TOO_LARGE
        if self.count and self.room.size + body + MAX_VARINT_BYTES > self.limit_bytes:
            return FULL
        if not room_reserve(&self.room, body + MAX_VARLONG_BYTES):
            return NO_MEMORY
        out = self.room.data + self.room.size
        out += put_varlong(out, body)
        out[0] = 0
        out += 1
        out += put_varlong(out, delta)
        out += put_varlong(out, self.count)
        out = put_bytes(out, key, key_size)
        out = put_bytes(out, value, value_size)
        out += put_varlong(out, count)
        for at in range(first, first + count):
            size = locate(&columns.header_keys, at, &start)
            out = put_bytes(out, start, size)
            size = locate(&columns.header_values, at, &start)
            out = put_bytes(out, start, size)
        self.room.size = out - self.room.data
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return PACKED
