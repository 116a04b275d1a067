"""Fetch: its request read from bytes, and an answer's parts written, partition by partition, without structs.

A request is read row by row by one cursor (`FetchRows`): `begin_fetch`, then `next_row` until it says that there are no
more, or that the request is not plain by its form.  The request is read again from its beginning when one of its rows
is needed once more.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

from kbroker._fast.base.cursor cimport (
    Cursor,
    cursor_init,
    cursor_int8,
    cursor_int32,
    cursor_int64,
    cursor_left,
    cursor_take,
    cursor_uvarint,
)
from kbroker._fast.base.put cimport put8, put16, put32, put64
from kbroker._fast.net.direct cimport NAME_BYTES, Topic, put_size, put_topic, read_size, read_text_size, read_topic

cdef enum:
    READ_COMMITTED = 1
    NO_SESSION = 0
    FINAL_EPOCH = -1
    # What stands in an answer, at most: before the topics, around a topic's name, before a partition's records.
    START_BYTES = 32
    AROUND_TOPIC_BYTES = 16
    ROW_BYTES = 64
    # A partition takes so many bytes of a request, at least.
    LEAST_ROW_BYTES = 16


cdef struct FetchLayout:
    # From which version on what is there, by the field tables (`handlers.fetch.versions`).
    int first                   # that is read here
    int last
    int throttle_times
    int max_bytes
    int isolation_levels
    int log_starts
    int sessions
    int leader_epochs
    int racks
    int flexible
    int topic_ids
    int replica_states


cdef struct FetchHead:
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    bint committed
    int32_t session_id
    int32_t session_epoch


cdef struct FetchRow:
    int32_t index
    int32_t leader_epoch
    int32_t last_fetched_epoch
    int64_t offset
    int64_t log_start_offset
    int32_t max_bytes


cdef struct FetchRows:
    Cursor cursor
    const FetchLayout* layout
    int version
    bint flexible
    FetchHead head
    Py_ssize_t topics           # that are still to come
    Py_ssize_t rows             # of the topic at hand that are still to come
    Py_ssize_t rows_of_topic
    Topic topic
    FetchRow row                # the one at hand


cdef struct Found:
    # What a fetch finds of a partition's log.
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t position            # of the records in the segment's file
    int64_t end                 # of what may be read of the file
    int64_t first               # the size of the first batch, UNKNOWN where it was not looked at
    int64_t size                # 0: no records; UNKNOWN: Python reads this partition


cdef enum:
    UNKNOWN = -1                # a size


cdef inline bint read_head(Cursor* cursor, const FetchLayout* layout, int version, FetchHead* head) noexcept nogil:
    """What stands before the topics; False for a follower's fetch and for an unknown isolation level."""
    cdef int8_t isolation = 0
    if version < layout.replica_states and cursor_int32(cursor) >= 0:
        return False
    head.max_wait_ms = cursor_int32(cursor)
    head.min_bytes = cursor_int32(cursor)
    head.max_bytes = cursor_int32(cursor) if version >= layout.max_bytes else 0x7FFFFFFF
    if version >= layout.isolation_levels:
        isolation = cursor_int8(cursor)
    head.committed = isolation == READ_COMMITTED
    head.session_id = NO_SESSION
    head.session_epoch = FINAL_EPOCH
    if version >= layout.sessions:
        head.session_id = cursor_int32(cursor)
        head.session_epoch = cursor_int32(cursor)
    return not isolation & ~READ_COMMITTED and not cursor.fault


cdef inline bint read_row(Cursor* cursor, const FetchLayout* layout, int version, FetchRow* row) noexcept nogil:
    """A partition; False where it has tagged fields, or is not there."""
    cdef bint flexible = version >= layout.flexible
    row.index = cursor_int32(cursor)
    # Any epoch below 0 is none here, as in Kafka, whose ListOffsets takes -1 alone for none.
    row.leader_epoch = max(cursor_int32(cursor), -1) if version >= layout.leader_epochs else -1
    row.offset = cursor_int64(cursor)
    row.last_fetched_epoch = cursor_int32(cursor) if flexible else -1
    row.log_start_offset = cursor_int64(cursor) if version >= layout.log_starts else -1
    row.max_bytes = cursor_int32(cursor)
    return not (flexible and cursor_uvarint(cursor)) and not cursor.fault


cdef inline bint is_ascii(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Whether the decoder takes this for text, at a glance."""
    cdef Py_ssize_t i
    for i in range(size):
        if data[i] >= 0x80:
            return False
    return True


cdef inline bint read_tail(Cursor* cursor, const FetchLayout* layout, int version) noexcept nogil:
    """What stands behind the topics, to the last byte; False where partitions are to be forgotten, or for tags."""
    cdef bint flexible = version >= layout.flexible
    cdef const uint8_t* rack
    cdef Py_ssize_t size
    if version >= layout.sessions and read_size(cursor, flexible) != 0:
        return False
    if version >= layout.racks:
        size = read_text_size(cursor, flexible)
        rack = cursor_take(cursor, size)
        if rack == NULL or size > NAME_BYTES or not is_ascii(rack, size):
            return False
    if flexible and cursor_uvarint(cursor):
        return False
    return not cursor.fault and cursor_left(cursor) == 0


cdef inline bint begin_fetch(FetchRows* self, const FetchLayout* layout, int version, const uint8_t* data,
                             Py_ssize_t size) noexcept nogil:
    """Reads what stands before the rows; False where that is not plain."""
    self.layout = layout
    self.version = version
    self.flexible = version >= layout.flexible
    self.rows = 0
    cursor_init(&self.cursor, data, size)
    if not read_head(&self.cursor, layout, version, &self.head):
        return False
    self.topics = read_size(&self.cursor, self.flexible)
    return 0 <= self.topics <= cursor_left(&self.cursor)


cdef inline int next_row(FetchRows* self) noexcept nogil:
    """1: the next row; 0: there was none left, and the request ends here; -1: the request is not plain."""
    if self.rows == 0:
        if self.topics == 0:
            return 0 if read_tail(&self.cursor, self.layout, self.version) else -1
        self.topics -= 1
        if not read_topic(&self.cursor, self.flexible, self.version >= self.layout.topic_ids, &self.topic):
            return -1
        self.rows = self.rows_of_topic = read_size(&self.cursor, self.flexible)
        if not 0 < self.rows <= cursor_left(&self.cursor) // LEAST_ROW_BYTES:
            return -1
    self.rows -= 1
    if not read_row(&self.cursor, self.layout, self.version, &self.row):
        return -1
    if self.rows == 0 and self.flexible and cursor_uvarint(&self.cursor):
        return -1       # tagged fields of the topic
    return 1


cdef inline bint begins_topic(const FetchRows* self) noexcept nogil:
    """Whether the row at hand is the first of its topic."""
    return self.rows + 1 == self.rows_of_topic


cdef inline uint8_t* put_start(uint8_t* at, const FetchLayout* layout, int version, int correlation_id,
                               int16_t error_code, int32_t session_id, Py_ssize_t topics) noexcept nogil:
    """What stands between the length and the first topic, START_BYTES at most."""
    at = put32(at, <uint32_t> correlation_id)
    if version >= layout.flexible:
        at = put8(at, 0)                # no tagged fields in the header
    if version >= layout.throttle_times:
        at = put32(at, 0)
    if version >= layout.sessions:
        at = put16(at, <uint16_t> error_code)
        at = put32(at, <uint32_t> session_id)
    return put_size(at, version >= layout.flexible, topics)


cdef inline uint8_t* put_row(uint8_t* at, const FetchLayout* layout, int version, int32_t index, bint committed,
                             const Found* found) noexcept nogil:
    """A partition's fields before its records, ROW_BYTES at most."""
    cdef bint flexible = version >= layout.flexible
    at = put32(at, <uint32_t> index)
    at = put16(at, 0)                   # error_code
    at = put64(at, found.high_watermark)
    if version >= layout.isolation_levels:
        at = put64(at, found.last_stable_offset)
    if version >= layout.log_starts:
        at = put64(at, found.log_start_offset)
    if version >= layout.isolation_levels:
        at = put_size(at, flexible, 0 if committed else -1)     # aborted_transactions
    if version >= layout.racks:
        at = put32(at, <uint32_t> -1)   # preferred_read_replica
    return put_size(at, flexible, found.size)


cdef inline Py_ssize_t tags_behind(const FetchLayout* layout, int version) noexcept nogil:
    """How many bytes follow the last records of an answer: no tagged fields of partition, topic and answer."""
    return 3 if version >= layout.flexible else 0
