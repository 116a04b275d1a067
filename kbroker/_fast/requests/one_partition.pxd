"""Fetches: their parts read from a request's bytes, and an answer's written, without structs."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.base.cursor cimport (
    Cursor,
    cursor_int8,
    cursor_int32,
    cursor_int64,
    cursor_left,
    cursor_take,
    cursor_uvarint,
)
from kbroker._fast.net.direct cimport NAME_BYTES, Topic, put_size, put_topic, read_size, read_text_size, read_topic
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.log.log_fields cimport FileFields
from kbroker._fast.base.put cimport put8, put16, put32, put64

cdef enum:
    READ_COMMITTED = 1
    FINAL_EPOCH = -1
    NO_TAGS = 3             # of partition, topic and answer: bytes
    FIRST_VERSION = 4
    FIRST_VERSION_WITH_LOG_START = 5
    FIRST_VERSION_WITH_SESSIONS = 7
    FIRST_VERSION_WITH_LEADER_EPOCHS = 9
    FIRST_VERSION_WITH_RACKS = 11
    FIRST_FLEXIBLE_VERSION = 12
    FIRST_VERSION_WITH_TOPIC_IDS = 13
    FIRST_VERSION_WITH_REPLICA_STATE = 15
    LAST_VERSION = 18
    # What stands in an answer before its records besides the topic, at most.
    ANSWER_BYTES = 96
    START_BYTES = 16
    ROW_BYTES = 48
    SIZE_BYTES = 5          # before an array


cdef struct OnePartition:
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    bint committed
    Topic topic
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t partition_max_bytes


cdef inline bint skip_ascii(Cursor* cursor, Py_ssize_t size) noexcept nogil:
    """False where a text may be none, or is very long."""
    cdef const uint8_t* data = cursor_take(cursor, size)
    cdef Py_ssize_t i
    if data == NULL or size > NAME_BYTES:
        return False
    for i in range(size):
        if data[i] >= 0x80:
            return False
    return True


cdef inline bint read_limits(Cursor* cursor, int version, OnePartition* asked) noexcept nogil:
    """What stands before a session's id; False where it is not the ordinary."""
    cdef int8_t isolation
    if version < FIRST_VERSION_WITH_REPLICA_STATE and cursor_int32(cursor) >= 0:
        return False    # another broker
    asked.max_wait_ms = cursor_int32(cursor)
    asked.min_bytes = cursor_int32(cursor)
    asked.max_bytes = cursor_int32(cursor)
    isolation = cursor_int8(cursor)
    asked.committed = isolation == READ_COMMITTED
    return not isolation & ~READ_COMMITTED


cdef inline bint read_head(Cursor* cursor, int version, OnePartition* asked) noexcept nogil:
    """What stands before the topics of a fetch without a session; False where it is not that."""
    if not read_limits(cursor, version, asked):
        return False
    return version < FIRST_VERSION_WITH_SESSIONS or (cursor_int32(cursor) == 0 and cursor_int32(cursor) == FINAL_EPOCH)


cdef inline bint read_row(Cursor* cursor, int version, OnePartition* asked) noexcept nogil:
    """A partition; False where it is not the ordinary one, or not there."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    asked.index = cursor_int32(cursor)
    asked.leader_epoch = cursor_int32(cursor) if version >= FIRST_VERSION_WITH_LEADER_EPOCHS else -1
    asked.offset = cursor_int64(cursor)
    if flexible and cursor_int32(cursor) >= 0:
        return False    # last_fetched_epoch
    if version >= FIRST_VERSION_WITH_LOG_START:
        cursor_int64(cursor)
    asked.partition_max_bytes = cursor_int32(cursor)
    return not (flexible and cursor_uvarint(cursor)) and not cursor.fault


cdef inline bint read_tail(Cursor* cursor, int version) noexcept nogil:
    """What stands behind the topics, to the last byte; False where there is more than ordinary."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    if version >= FIRST_VERSION_WITH_SESSIONS and read_size(cursor, flexible) != 0:
        return False    # topics to be forgotten
    if version >= FIRST_VERSION_WITH_RACKS and not skip_ascii(cursor, read_text_size(cursor, flexible)):
        return False
    if flexible and cursor_uvarint(cursor):
        return False
    return not cursor.fault and cursor_left(cursor) == 0


cdef inline bint read_one_partition(Cursor* cursor, int version, OnePartition* asked) noexcept nogil:
    """Reads a request to its last byte; False where it is not the ordinary one."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    if not read_head(cursor, version, asked) or read_size(cursor, flexible) != 1:
        return False
    if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &asked.topic):
        return False
    if read_size(cursor, flexible) != 1 or not read_row(cursor, version, asked):
        return False
    if flexible and cursor_uvarint(cursor):
        return False    # tagged fields of the topic
    return read_tail(cursor, version)


cdef struct Stretch:
    int64_t high_watermark
    int64_t log_start_offset
    int64_t position
    int64_t end         # of what may be read of the file
    int64_t first       # the size of the first batch, where that is known
    int64_t size        # 0: no records


cdef inline Py_ssize_t tags_behind(int version) noexcept nogil:
    return NO_TAGS if version >= FIRST_FLEXIBLE_VERSION else 0


cdef inline uint8_t* put_start(uint8_t* at, int version, int correlation_id, int session_id) noexcept nogil:
    """What stands between the length and the topics, START_BYTES at most."""
    at = put32(at, <uint32_t> correlation_id)
    if version >= FIRST_FLEXIBLE_VERSION:
        at = put8(at, 0)                # no tagged fields in the header
    at = put32(at, 0)                   # throttle_time_ms
    if version >= FIRST_VERSION_WITH_SESSIONS:
        at = put16(at, 0)               # error_code
        at = put32(at, <uint32_t> session_id)
    return at


cdef inline uint8_t* put_row(uint8_t* at, int version, const OnePartition* asked, const Stretch* found) noexcept nogil:
    """A partition's fields before its records, ROW_BYTES at most."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    at = put32(at, <uint32_t> asked.index)
    at = put16(at, 0)                   # error_code
    at = put64(at, found.high_watermark)
    at = put64(at, found.high_watermark)        # last_stable_offset
    if version >= FIRST_VERSION_WITH_LOG_START:
        at = put64(at, found.log_start_offset)
    at = put_size(at, flexible, 0 if asked.committed else -1)       # aborted_transactions
    if version >= FIRST_VERSION_WITH_RACKS:
        at = put32(at, <uint32_t> -1)   # preferred_read_replica
    return put_size(at, flexible, found.size)


cdef inline Py_ssize_t put_head(uint8_t* frame, int version, int correlation_id, const OnePartition* asked,
                                const Stretch* found) noexcept nogil:
    """What stands before the records, ANSWER_BYTES + NAME_BYTES at most; how much that is.

    Records, and zeros (`tags_behind`), make it what `encode_response` makes of a `FetchResponse` with this one
    partition and defaults else.
    """
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    cdef uint8_t* at = put_start(frame + 4, version, correlation_id, 0)
    at = put_size(at, flexible, 1)      # topics
    at = put_topic(at, flexible, &asked.topic)
    at = put_size(at, flexible, 1)      # partitions
    at = put_row(at, version, asked, found)
    put32(frame, <uint32_t> (at - frame - 4 + found.size + tags_behind(version)))
    return at - frame


cdef inline list encode_answer(int version, int correlation_id, const OnePartition* asked, const Stretch* found,
                               FileFields file):
    """The answer as parts."""
    cdef uint8_t[ANSWER_BYTES + NAME_BYTES] frame
    cdef list parts = [PyBytes_FromStringAndSize(<const char*> frame,
                                                 put_head(frame, version, correlation_id, asked, found))]
    if found.size > 0:
        parts.append(FileRegion(file.fd, found.position, found.size, file))
    if tags_behind(version):
        parts.append(b"\0\0\0")         # no tagged fields of partition, topic and answer
    return parts
