"""The ordinary produce: a request of one batch, for acks 1 and all, from the bytes that came to those that leave.

Anything else, errors included, is left to the handler: versions before 7, several batches, a transaction's id, fields
that are null, tagged fields, bytes too many or too few.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker._fast.append_group cimport AppendGroup, write_groups
from kbroker._fast.crew cimport Crew
from kbroker._fast.cursor cimport (
    Cursor,
    cursor_init,
    cursor_int16,
    cursor_int32,
    cursor_left,
    cursor_take,
    cursor_uvarint,
)
from kbroker._fast.direct cimport (
    ASKED_TOGETHER,
    NAME_BYTES,
    Asked,
    DirectAnswers,
    Topic,
    put_size,
    put_topic,
    read_size,
    read_text_size,
    read_topic,
)
from kbroker._fast.log_fields cimport PartitionFields
from kbroker._fast.monotonic cimport wall_ms
from kbroker._fast.ordinary_append cimport append_at
from kbroker._fast.put cimport put8, put16, put32, put64

cdef enum:
    FIRST_VERSION_WITH_ZSTD = 7
    FIRST_VERSION_WITH_RECORD_ERRORS = 8
    FIRST_FLEXIBLE_VERSION = 9
    FIRST_VERSION_WITH_TOPIC_IDS = 13
    LAST_VERSION = 13
    # What stands in an answer besides the topic, at most.
    ANSWER_BYTES = 64


cdef struct OneBatch:
    int16_t acks
    Topic topic
    int32_t index
    uint8_t* records
    Py_ssize_t size


cdef bint read_one_batch(Cursor* cursor, int version, OneBatch* asked) noexcept nogil:
    """Reads a request to its last byte; False where it is not the ordinary one."""
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    if read_text_size(cursor, flexible) != -1:
        return False    # a transaction's id
    asked.acks = cursor_int16(cursor)
    cursor_int32(cursor)                # timeout_ms
    if read_size(cursor, flexible) != 1:
        return False
    if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &asked.topic):
        return False
    if read_size(cursor, flexible) != 1:
        return False
    asked.index = cursor_int32(cursor)
    asked.size = read_size(cursor, flexible)
    # The request's own bytes, which may be written into.
    asked.records = <uint8_t*> cursor_take(cursor, asked.size)
    # Tagged fields of partition, topic and request.
    if flexible and (cursor_uvarint(cursor) or cursor_uvarint(cursor) or cursor_uvarint(cursor)):
        return False
    return not cursor.fault and cursor_left(cursor) == 0


cdef bint _read(int version, const uint8_t* data, Py_ssize_t size, OneBatch* asked) noexcept nogil:
    """Whether the request is the ordinary one by its form."""
    cdef Cursor cursor
    if not FIRST_VERSION_WITH_ZSTD <= version <= LAST_VERSION:
        return False
    cursor_init(&cursor, data, size)
    return read_one_batch(&cursor, version, asked) and (asked.acks == 1 or asked.acks == -1)


cdef class OrdinaryProduce(DirectAnswers):
    """`internal`: the topics that not everybody may write to.  `system_clock`: the type of a clock that tells the
    system's time, which is then asked without it."""

    cdef frozenset internal
    cdef object system_clock
    cdef list groups

    def __init__(self, frozenset internal, system_clock):
        self.internal = internal
        self.system_clock = system_clock
        self.groups = []

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer, once the batch is appended and who waits for it is woken.

        The services give the partitions that are led (`replica_manager.topics`, `.names`) and the time.
        """
        cdef OneBatch asked
        cdef int64_t first
        cdef PartitionFields partition = self._place(services.replica_manager, version, data, size, &asked)
        if partition is None:
            return None
        first = append_at(partition.log_, asked.records, asked.size, partition.leader_epoch, self._now_ms(services))
        if first < 0:
            return None
        if len(partition.waiting) > 0:
            services.replica_manager.purgatory.mark(partition)
        return encode_answer(version, correlation_id, &asked, first, partition.log_.log_start_offset)

    cdef bint may_wait(self, const Asked* asked) noexcept:
        cdef OneBatch batch
        return _read(asked.version, asked.data, asked.size, &batch)

    cdef list answer_all(self, object services, const Asked* asked, int count, Crew crew):
        """The batches for one log are written together, in the order of their requests; the crew takes the logs."""
        cdef OneBatch[ASKED_TOGETHER] batches
        cdef int[ASKED_TOGETHER] group_of       # of each request; -1 where there is none
        cdef int[ASKED_TOGETHER] member_of      # its number there; -1 where the batch is out of the ordinary
        cdef int index, number
        cdef object manager = services.replica_manager
        cdef int64_t now_ms = self._now_ms(services)
        cdef list answers = [None] * count
        cdef list partitions = []
        try:
            for index in range(count):
                group_of[index] = member_of[index] = -1
                try:
                    self._gather(manager, &asked[index], &batches[index], now_ms, partitions,
                                 &group_of[index], &member_of[index])
                except Exception as error:
                    answers[index] = error
            write_groups(self.groups, len(partitions), crew)
            for number in range(len(partitions)):
                self._finish(manager, number, partitions[number], asked, batches, count, group_of, member_of, answers)
        finally:
            for number in range(len(partitions)):
                (<AppendGroup> self.groups[number]).undo()
                (<AppendGroup> self.groups[number]).clear()
        return answers

    @cython.nonecheck(True)
    cdef int _gather(self, object manager, const Asked* asked, OneBatch* batch, int64_t now_ms, list partitions,
                     int* group_of, int* member_of) except -1:
        """Adds the request's batch to the group of its partition, which is one of `partitions` then."""
        cdef PartitionFields partition = self._place(manager, asked.version, asked.data, asked.size, batch)
        cdef AppendGroup group
        cdef int number
        if partition is None:
            return 0
        for number in range(len(partitions)):
            if partitions[number] is partition:
                break
        else:
            number = len(partitions)
            if number == len(self.groups):
                self.groups.append(AppendGroup())
            (<AppendGroup> self.groups[number]).begin(partition.log_, partition.leader_epoch, now_ms)
            partitions.append(partition)
        group = self.groups[number]
        group_of[0] = number
        if group.file is not None and group.add(batch.records, batch.size):
            member_of[0] = group.group.count - 1
        return 0

    @cython.nonecheck(True)
    cdef int _finish(self, object manager, int number, PartitionFields partition, const Asked* asked,
                     const OneBatch* batches, int count, const int* group_of, const int* member_of,
                     list answers) except -1:
        """The answers to what was written for one partition; where that fails, the exception for all that go there."""
        cdef AppendGroup group = self.groups[number]
        cdef int64_t offset
        cdef int index
        try:
            if not group.finish():
                return 0
            if len(partition.waiting) > 0:
                manager.purgatory.mark(partition)
            for index in range(count):
                if group_of[index] == number and member_of[index] >= 0:
                    offset = group.group.members[member_of[index]].offset
                    if offset >= 0:
                        answers[index] = encode_answer(asked[index].version, asked[index].correlation_id,
                                                       &batches[index], offset, partition.log_.log_start_offset)
        except Exception as error:
            for index in range(count):
                if group_of[index] == number:
                    answers[index] = error
        return 0

    @cython.nonecheck(True)
    cdef PartitionFields _place(self, object manager, int version, uint8_t* data, Py_ssize_t size, OneBatch* asked):
        """Reads a request; the partition that its batch goes to, None where the request is not ordinary."""
        cdef PartitionFields partition
        cdef object name, led
        if not _read(version, data, size, asked):
            return None
        name = self.topic_name(&asked.topic, manager)
        led = manager.topics.get(name)
        if led is None or name in self.internal:
            return None
        partition = (<dict?> led).get(asked.index)
        if partition is None or (asked.acks < 0 and len(partition.isr) < partition.min_in_sync):
            return None
        return partition

    cdef int64_t _now_ms(self, services) except? -1:
        cdef object clock = services.clock
        return wall_ms() if type(clock) is self.system_clock else <int64_t> clock.now_ms()


cdef bytes encode_answer(int version, int correlation_id, const OneBatch* asked, int64_t first, int64_t start):
    """What `encode_response` makes of a `ProduceResponse` with this one partition and defaults else."""
    cdef uint8_t[ANSWER_BYTES + NAME_BYTES] frame
    cdef uint8_t* at = frame + 4
    cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
    at = put32(at, <uint32_t> correlation_id)
    if flexible:
        at = put8(at, 0)                # no tagged fields in the header
    at = put_size(at, flexible, 1)      # topics
    at = put_topic(at, flexible, &asked.topic)
    at = put_size(at, flexible, 1)      # partitions
    at = put32(at, <uint32_t> asked.index)
    at = put16(at, 0)                   # error_code
    at = put64(at, first)
    at = put64(at, -1)                  # log_append_time_ms
    at = put64(at, start)
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        at = put_size(at, flexible, 0)
        at = put8(at, 0) if flexible else put16(at, 0xFFFF)     # error_message: null
    if flexible:
        at = put8(at, 0)                # no tagged fields of the partition
        at = put8(at, 0)                # nor of the topic
    at = put32(at, 0)                   # throttle_time_ms
    if flexible:
        at = put8(at, 0)                # nor of the answer
    put32(frame, <uint32_t> (at - frame - 4))
    return PyBytes_FromStringAndSize(<const char*> frame, at - frame)
