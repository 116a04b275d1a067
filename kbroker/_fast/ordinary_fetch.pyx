"""The ordinary read and the ordinary fetch, each in one call.

Most fetches go on where the one before ended, in a log without open transactions whose records are all visible.  Those
are served here; for whatever is out of the ordinary the answer is None, nothing has been changed, and the handler in
Python serves it, errors included.  What is ordinary gets the answer that the handler would give.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.batch_seek cimport HEADER_BYTES, SEEN, FollowUps, Seen, see
from kbroker._fast.cursor cimport (
    Cursor,
    cursor_init,
    cursor_int8,
    cursor_int32,
    cursor_int64,
    cursor_left,
    cursor_take,
    cursor_uvarint,
)
from kbroker._fast.direct cimport (
    NAME_BYTES,
    DirectAnswers,
    Topic,
    put_size,
    put_topic,
    read_size,
    read_text_size,
    read_topic,
)
from kbroker._fast.file_region cimport FileRegion
from kbroker._fast.index cimport TailBatch, load64
from kbroker._fast.log_fields cimport FileFields, LocalLogFields, LogFields, PartitionFields, SegmentFields
from kbroker._fast.put cimport put8, put16, put32, put64

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)

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


cdef struct OnePartition:
    int32_t min_bytes
    int32_t max_bytes
    bint committed
    Topic topic
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t partition_max_bytes


cdef bint skip_ascii(Cursor* cursor, Py_ssize_t size) noexcept nogil:
    """False where a text may be none, or is very long."""
    cdef const uint8_t* data = cursor_take(cursor, size)
    cdef Py_ssize_t i
    if data == NULL or size > NAME_BYTES:
        return False
    for i in range(size):
        if data[i] >= 0x80:
            return False
    return True


cdef bint read_one_partition(Cursor* cursor, int version, OnePartition* asked) noexcept nogil:
    """Reads a request to its last byte; False where it is not the ordinary one."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    cdef int8_t isolation
    if version < FIRST_VERSION_WITH_REPLICA_STATE and cursor_int32(cursor) >= 0:
        return False    # another broker
    cursor_int32(cursor)                # max_wait_ms
    asked.min_bytes = cursor_int32(cursor)
    asked.max_bytes = cursor_int32(cursor)
    isolation = cursor_int8(cursor)
    asked.committed = isolation == READ_COMMITTED
    if isolation & ~READ_COMMITTED:
        return False
    if version >= FIRST_VERSION_WITH_SESSIONS and (cursor_int32(cursor) != 0 or cursor_int32(cursor) != FINAL_EPOCH):
        return False    # a session
    if read_size(cursor, flexible) != 1:
        return False
    if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &asked.topic):
        return False
    if read_size(cursor, flexible) != 1:
        return False
    asked.index = cursor_int32(cursor)
    asked.leader_epoch = cursor_int32(cursor) if version >= FIRST_VERSION_WITH_LEADER_EPOCHS else -1
    asked.offset = cursor_int64(cursor)
    if flexible and cursor_int32(cursor) >= 0:
        return False    # last_fetched_epoch
    if version >= FIRST_VERSION_WITH_LOG_START:
        cursor_int64(cursor)
    asked.partition_max_bytes = cursor_int32(cursor)
    if flexible and (cursor_uvarint(cursor) or cursor_uvarint(cursor)):
        return False    # tagged fields of partition and topic
    if version >= FIRST_VERSION_WITH_SESSIONS and read_size(cursor, flexible) != 0:
        return False    # topics to be forgotten
    if version >= FIRST_VERSION_WITH_RACKS and not skip_ascii(cursor, read_text_size(cursor, flexible)):
        return False
    if flexible and cursor_uvarint(cursor):
        return False
    return not cursor.fault and cursor_left(cursor) == 0


cdef struct Stretch:
    int64_t high_watermark
    int64_t log_start_offset
    int64_t position
    int64_t size


cdef class OrdinaryFetch(DirectAnswers):
    """`partition_data` is the struct of a partition's answer.

    `file_system`: the type whose calls may be made here directly; logs on any other are never ordinary.
    """

    cdef object partition_data
    cdef object file_system

    def __init__(self, partition_data, file_system):
        self.partition_data = partition_data
        self.file_system = file_system

    @cython.nonecheck(True)
    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer to a fetch of one partition without a session."""
        cdef Cursor cursor
        cdef OnePartition asked
        cdef Stretch found
        cdef PartitionFields partition
        cdef FileFields file
        cdef int64_t most
        cdef object led, manager
        if not FIRST_VERSION <= version <= LAST_VERSION:
            return None
        cursor_init(&cursor, data, size)
        if not read_one_partition(&cursor, version, &asked):
            return None
        manager = services.replica_manager
        led = manager.topics.get(self.topic_name(&asked.topic, manager))
        if led is None:
            return None
        partition = (<dict?> led).get(asked.index)
        if partition is None or (asked.leader_epoch >= 0 and asked.leader_epoch != partition.leader_epoch):
            return None
        most = min(<int64_t> asked.max_bytes, <int64_t> services.fetch_max_bytes)
        try:
            file = self._find(partition.log_, asked.offset, min(<int64_t> asked.partition_max_bytes, most), True,
                              asked.committed, &found)
        except OSError:
            return None     # the handler meets it again, tells the client, and whoever watches the disk
        if file is None or found.size < min(<int64_t> asked.min_bytes, most):
            return None
        return encode_answer(version, correlation_id, &asked, &found, file)

    def read(self, LogFields log not None, index, int64_t offset, int64_t limit, bint at_least_one, bint committed):
        """The answer of one partition with records from `offset` on, at most `limit` bytes of them; or None.

        With `at_least_one` the first batch comes whole, whatever its size.  `committed`: no records of transactions
        that are open or were aborted.
        """
        cdef Stretch found
        cdef FileFields file = self._find(log, offset, limit, at_least_one, committed, &found)
        if file is None:
            return None
        return self.partition_data(
            partition_index=index,
            high_watermark=found.high_watermark,
            last_stable_offset=found.high_watermark,
            log_start_offset=found.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=FileRegion(file.fd, found.position, found.size, file),
        )

    @cython.nonecheck(True)
    cdef FileFields _find(self, LogFields log, int64_t offset, int64_t limit, bint at_least_one, bint committed,
                          Stretch* found):
        cdef LocalLogFields local = log.local_
        cdef SegmentFields segment
        cdef FileFields file
        cdef int64_t size, end
        cdef const TailBatch* batch = NULL
        found.high_watermark = log.high_watermark
        found.log_start_offset = log.log_start_offset
        if limit < 0 or log.high_watermark != local.log_end_offset or offset < log.log_start_offset:
            return None
        if offset >= local.log_end_offset or log.producer_state_.first_unstable_offset is not None:
            return None
        if type(local.environment_.files) is not self.file_system:
            return None
        segment = local.segments_.active_
        if offset < segment.base_offset:
            if committed:
                return None     # a transaction may have been aborted in a later segment
            segment = (<object> local.segments_).floor(offset)
            if segment is None:
                return None
        elif committed and (<object> segment).has_txn_index:
            return None
        file = segment.open_file_
        if file is None:
            file = (<object> segment).file()
        segment.recently_used = True
        if segment.tail is not None:
            batch = segment.tail.batch_of(offset)
            end = segment.tail.size
        else:
            end = (<object> segment).size
        if batch != NULL:
            found.position = batch.position
            size = batch.size
        else:
            size = next_batch(segment.follow_ups, file.fd, offset, end, &found.position)
            if size < 0:
                return None
        if size > limit:
            if not at_least_one:
                return None
            limit = size
        found.size = min(limit, end - found.position)
        return file


cdef int64_t next_batch(FollowUps follow_ups, int fd, int64_t offset, int64_t end, int64_t* position) except? -2:
    """The size of the batch that begins with or holds `offset`, and its position; -1 when that takes a look-up."""
    cdef uint8_t header[HEADER_BYTES]
    cdef Seen seen
    cdef ssize_t got
    if follow_ups is None:
        return -1
    position[0] = follow_ups.position_of(offset)
    if position[0] < 0 or position[0] >= end:
        return -1
    got = pread(fd, header, HEADER_BYTES, position[0])
    if got != HEADER_BYTES or see(header, got, &seen) != SEEN:
        return -1
    if seen.last < offset or seen.size > end - position[0] or load64(header) > seen.last:
        return -1
    follow_ups.add(seen.last + 1, position[0] + seen.size)
    return seen.size


cdef list encode_answer(int version, int correlation_id, const OnePartition* asked, const Stretch* found,
                        FileFields file):
    """What `encode_response` makes of a `FetchResponse` with this one partition and defaults else."""
    cdef uint8_t[ANSWER_BYTES + NAME_BYTES] frame
    cdef uint8_t* at = frame + 4
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    cdef int64_t behind = NO_TAGS if flexible else 0
    cdef list parts
    at = put32(at, <uint32_t> correlation_id)
    if flexible:
        at = put8(at, 0)                # no tagged fields in the header
    at = put32(at, 0)                   # throttle_time_ms
    if version >= FIRST_VERSION_WITH_SESSIONS:
        at = put16(at, 0)               # error_code
        at = put32(at, 0)               # session_id
    at = put_size(at, flexible, 1)      # topics
    at = put_topic(at, flexible, &asked.topic)
    at = put_size(at, flexible, 1)      # partitions
    at = put32(at, <uint32_t> asked.index)
    at = put16(at, 0)                   # error_code
    at = put64(at, found.high_watermark)
    at = put64(at, found.high_watermark)        # last_stable_offset
    if version >= FIRST_VERSION_WITH_LOG_START:
        at = put64(at, found.log_start_offset)
    at = put_size(at, flexible, 0 if asked.committed else -1)       # aborted_transactions
    if version >= FIRST_VERSION_WITH_RACKS:
        at = put32(at, <uint32_t> -1)   # preferred_read_replica
    at = put_size(at, flexible, found.size)
    put32(frame, <uint32_t> (at - frame - 4 + found.size + behind))
    parts = [
        PyBytes_FromStringAndSize(<const char*> frame, at - frame),
        FileRegion(file.fd, found.position, found.size, file),
    ]
    if flexible:
        parts.append(b"\0\0\0")         # no tagged fields of partition, topic and answer
    return parts
