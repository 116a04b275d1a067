"""The walk over records that arrive in pieces: what a decompressor gives, chunk by chunk.

A record that lies whole in the chunk takes the quick walk (`record_walk.pxd`); one that a chunk's end cuts goes through
a state machine which stops at any byte and never keeps more than an unfinished varint.  So memory does not depend on
what the records claim to be: a key of a gigabyte is skipped as it comes.

    LENGTH -> ATTRIBUTES -> TIMESTAMP -> OFFSET -> KEY_LENGTH -> KEY -> VALUE_LENGTH -> VALUE -> HEADERS_COUNT
    HEADERS_COUNT, HEADER_VALUE -> HEADER_KEY_LENGTH -> HEADER_KEY -> HEADER_VALUE_LENGTH -> HEADER_VALUE
    HEADERS_COUNT, HEADER_VALUE -> LENGTH of the next record, when no header is left
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kbroker._fast.base.cursor cimport CURSOR_OK, Cursor, cursor_init, cursor_left, cursor_take
from kbroker._fast.records.batch_info cimport BatchInfo, walk_error
from kbroker._fast.records.record_walk cimport (
    WALK_HEADERS_NEGATIVE,
    WALK_HEADERS_TOO_MANY,
    WALK_HEADER_KEY_NEGATIVE,
    WALK_LEFT_OVER,
    WALK_NEGATIVE_LENGTH,
    WALK_OFFSET_DELTA,
    WALK_PREMATURE_END,
    WALK_RECORD_SIZE,
    WALK_STRUCTURE,
    Walk,
    walk_fail,
    walk_init,
    walk_note,
    walk_record,
)
from kbroker._fast.base.varint cimport short_varint


cdef enum Took:
    TOOK_ALL = 1
    TOOK_PART = 0
    TOOK_FAULT = -1


cdef int take_varint(Stream* self, Cursor* cursor, int bits, int64_t* value) noexcept nogil:
    """Goes on with a varint of 32 or 64 bits, the bytes of which may come from several chunks."""
    cdef const uint8_t* p
    cdef uint8_t byte
    while cursor_left(cursor):
        p = cursor_take(cursor, 1)
        byte = p[0]
        self.left -= 1
        # The last byte of the width may only hold the bits that are left of it.
        if self.shift + 7 > bits and (byte >> (bits - self.shift)):
            walk_fail(&self.walk, WALK_STRUCTURE, 0, 0)
            return TOOK_FAULT
        self.raw |= <uint64_t>(byte & 0x7F) << self.shift
        self.shift += 7
        if byte < 0x80:
            value[0] = <int64_t>((self.raw >> 1) ^ (0 - (self.raw & 1)))
            self.raw = 0
            self.shift = 0
            if self.left < 0 and self.state != LENGTH:
                walk_fail(&self.walk, WALK_STRUCTURE, 0, 0)
                return TOOK_FAULT
            return TOOK_ALL
    return TOOK_PART


cdef int take_skip(Stream* self, Cursor* cursor) noexcept nogil:
    cdef int64_t size = min(self.skip, <int64_t>cursor_left(cursor))
    cursor_take(cursor, size)
    self.skip -= size
    self.left -= size
    return TOOK_PART if self.skip else TOOK_ALL


cdef int begin_skip(Stream* self, int64_t length, int state) noexcept nogil:
    """Sets out to skip a key or value of `length`, negative for null."""
    if length < -1:
        walk_fail(&self.walk, WALK_NEGATIVE_LENGTH, length, 0)
        return TOOK_FAULT
    if length > self.left:
        walk_fail(&self.walk, WALK_STRUCTURE, 0, 0)
        return TOOK_FAULT
    self.skip = max(length, 0)
    self.state = state
    return TOOK_ALL


cdef int end_fields(Stream* self) noexcept nogil:
    """After the count of headers or a header: on to the next header, or the record is done."""
    if self.headers > 0:
        self.headers -= 1
        self.state = HEADER_KEY_LENGTH
        return TOOK_ALL
    if self.left != 0:
        walk_fail(&self.walk, WALK_RECORD_SIZE, self.length, self.length - self.left)
        return TOOK_FAULT
    walk_note(&self.walk, self.timestamp_delta, self.key_length, self.value_length)
    self.walk.index += 1
    self.state = LENGTH
    return TOOK_ALL


cdef int take_number(Stream* self, Cursor* cursor) noexcept nogil:
    """One step of a state that reads a varint."""
    cdef int64_t value = 0
    cdef int took = take_varint(self, cursor, 64 if self.state == TIMESTAMP else 32, &value)
    if took != TOOK_ALL:
        return took
    if self.state == LENGTH:
        if value < 0:
            walk_fail(&self.walk, WALK_RECORD_SIZE, value, 0)
            return TOOK_FAULT
        self.length = <int32_t>value
        self.left = value
        self.state = ATTRIBUTES
    elif self.state == TIMESTAMP:
        self.timestamp_delta = value
        self.state = OFFSET
    elif self.state == OFFSET:
        if value != self.walk.index:
            walk_fail(&self.walk, WALK_OFFSET_DELTA, value, self.walk.index)
            return TOOK_FAULT
        self.state = KEY_LENGTH
    elif self.state == KEY_LENGTH:
        self.key_length = <int32_t>value
        return begin_skip(self, value, KEY)
    elif self.state == VALUE_LENGTH:
        self.value_length = <int32_t>value
        return begin_skip(self, value, VALUE)
    elif self.state == HEADERS_COUNT:
        if value < 0:
            walk_fail(&self.walk, WALK_HEADERS_NEGATIVE, value, 0)
            return TOOK_FAULT
        if value > self.left:
            walk_fail(&self.walk, WALK_HEADERS_TOO_MANY, value, 0)
            return TOOK_FAULT
        self.headers = <int32_t>value
        return end_fields(self)
    elif self.state == HEADER_KEY_LENGTH:
        if value < 0:
            walk_fail(&self.walk, WALK_HEADER_KEY_NEGATIVE, value, 0)
            return TOOK_FAULT
        return begin_skip(self, value, HEADER_KEY)
    else:
        return begin_skip(self, value, HEADER_VALUE)
    return TOOK_ALL


cdef int step(Stream* self, Cursor* cursor) noexcept nogil:
    cdef int took
    if self.state == ATTRIBUTES:
        if self.left < 1:
            walk_fail(&self.walk, WALK_STRUCTURE, 0, 0)
            return TOOK_FAULT
        if cursor_take(cursor, 1) == NULL:
            return TOOK_PART
        self.left -= 1
        self.state = TIMESTAMP
        return TOOK_ALL
    if self.state == KEY or self.state == VALUE or self.state == HEADER_KEY or self.state == HEADER_VALUE:
        took = take_skip(self, cursor)
        if took == TOOK_ALL:
            if self.state == HEADER_VALUE:
                return end_fields(self)
            self.state += 1
        return took
    return take_number(self, cursor)


cdef bint lies_whole(const Cursor* cursor) noexcept nogil:
    """Whether the record at `cursor` ends inside of the chunk; the quick walk finds out whether it is well-formed."""
    cdef Cursor ahead = cursor[0]
    cdef int32_t length = short_varint(&ahead)
    return ahead.fault == CURSOR_OK and length <= cursor_left(&ahead)


cdef bint feed(Stream* self, Cursor* cursor) noexcept nogil:
    """Walks until the chunk or the declared records end; False with the fault set."""
    cdef int took
    while cursor_left(cursor):
        if self.state == LENGTH and self.shift == 0:
            if self.walk.index >= self.count:
                return walk_fail(&self.walk, WALK_LEFT_OVER, cursor_left(cursor), 0)
            if lies_whole(cursor):
                if not walk_record(cursor, &self.walk):
                    return False
                continue
        took = step(self, cursor)
        if took == TOOK_FAULT:
            return False
        # An empty key, value or header list needs no byte to be done with.
        while took == TOOK_ALL and self.state != LENGTH and not cursor_left(cursor) and awaits_nothing(self):
            took = step(self, cursor)
            if took == TOOK_FAULT:
                return False
    return True


cdef inline bint awaits_nothing(const Stream* self) noexcept nogil:
    cdef int state = self.state
    return self.skip == 0 and (state == KEY or state == VALUE or state == HEADER_KEY or state == HEADER_VALUE)


cdef bint is_complete(const Stream* self) noexcept nogil:
    """Whether the payload held all declared records and no byte more."""
    return self.walk.index == self.count and self.state == LENGTH and self.shift == 0


cdef void begin_stream(Stream* self, const Header* header) noexcept nogil:
    memset(self, 0, sizeof(Stream))
    self.count = header.records_count
    self.state = LENGTH
    walk_init(&self.walk, header.base_timestamp)


cdef class RecordWalker:
    """Walks the records of the batch of `info` through `feed`; `finish` says whether all were there.

    With `collect`, the first that many records which lack a key (`require_key`) or have a timestamp outside of the
    bounds, or simply all (`every`), are listed in `findings` as (index, timestamp, key length, value length).  When the
    list is full, nothing more is read.
    """

    cdef Stream stream
    cdef BatchInfo info
    cdef readonly list findings
    cdef int collect
    cdef bint every
    cdef bint require_key
    cdef int64_t earliest
    cdef int64_t latest

    def __cinit__(
        self,
        BatchInfo info not None,
        *,
        int collect=0,
        bint every=False,
        bint require_key=False,
        int64_t earliest=INT64_MIN,
        int64_t latest=INT64_MAX,
    ):
        self.info = info
        begin_stream(&self.stream, &info.header)
        self.findings = []
        self.collect = collect
        self.every = every
        self.require_key = require_key
        self.earliest = earliest
        self.latest = latest

    def feed(self, chunk):
        """Takes the next bytes of the payload.  Raises InvalidRecordsError; the walker is then of no more use."""
        cdef Py_buffer view
        cdef Cursor cursor
        cdef bint good
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        try:
            cursor_init(&cursor, <const uint8_t*>view.buf, view.len)
            if self.collect:
                good = self._feed_slowly(&cursor)
            else:
                good = feed(&self.stream, &cursor)
        finally:
            PyBuffer_Release(&view)
        if not good:
            raise walk_error(&self.stream.walk)

    cdef bint _feed_slowly(self, Cursor* cursor) except -1:
        """Feeds up to one record at a time by way of the state machine, to look at each."""
        cdef int32_t before
        cdef int took
        while cursor_left(cursor) or (self.stream.state != LENGTH and awaits_nothing(&self.stream)):
            if len(self.findings) >= self.collect:
                return True
            before = self.stream.walk.index
            if self.stream.state == LENGTH and self.stream.shift == 0 and before >= self.stream.count:
                return walk_fail(&self.stream.walk, WALK_LEFT_OVER, cursor_left(cursor), 0)
            took = step(&self.stream, cursor)
            if took == TOOK_FAULT:
                return False
            if self.stream.walk.index != before:
                self._look()
        return True

    cdef int _look(self) except -1:
        cdef Walk* walk = &self.stream.walk
        cdef bint keyless = self.require_key and walk.key_length < 0
        cdef bint untimely = walk.timestamp != -1 and (walk.timestamp < self.earliest or walk.timestamp > self.latest)
        if self.every or keyless or untimely:
            self.findings.append((walk.index - 1, walk.timestamp, walk.key_length, walk.value_length))
        return 0

    def finish(self):
        """InvalidRecordsError unless all declared records were there; the batch's info then has the walk's results."""
        if not is_complete(&self.stream):
            walk_fail(&self.stream.walk, WALK_PREMATURE_END, 0, 0)
            raise walk_error(&self.stream.walk)
        self.info.take_walk(&self.stream.walk)


def walk_decompressed(BatchInfo info not None, chunks):
    """Walks the records of a compressed batch from the chunks of its decompressed payload."""
    cdef RecordWalker walker = RecordWalker(info)
    for chunk in chunks:
        walker.feed(chunk)
    walker.finish()
    return info
