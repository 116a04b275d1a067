from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.base.cursor cimport Cursor
from kbroker._fast.records.record_walk cimport Walk


cdef enum State:
    LENGTH
    ATTRIBUTES
    TIMESTAMP
    OFFSET
    KEY_LENGTH
    KEY
    VALUE_LENGTH
    VALUE
    HEADERS_COUNT
    HEADER_KEY_LENGTH
    HEADER_KEY
    HEADER_VALUE_LENGTH
    HEADER_VALUE


cdef struct Stream:
    Walk walk
    int32_t count             # records declared
    int state
    uint64_t raw              # the varint being read
    int shift
    int64_t left              # bytes of the record not read yet
    int64_t skip              # bytes of a key or value not skipped yet
    int32_t length            # what the record said it has
    int32_t headers
    int64_t timestamp_delta
    int32_t key_length
    int32_t value_length


cdef void begin_stream(Stream* self, const Header* header) noexcept nogil
cdef bint feed(Stream* self, Cursor* cursor) noexcept nogil
cdef bint is_complete(const Stream* self) noexcept nogil
