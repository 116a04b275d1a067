"""Produce on the fast path: each partition's batch is appended here, from the request's bytes, where it can be.

A request of any number of partitions is read row by row.  A batch that the log takes as it is (`fast_append`) is
appended in C.  Any other batch is left to the handler: it gets the decoded request and the offsets of the batches
appended here, and answers for all partitions (`PartialAppend`).  Batches of one partition keep their order: after a
batch that is left to the handler, all later ones of its partition are left as well.  So are the batches that are not
appended when a slice of the loop's time is used up.  A request that is not plain by its form (tagged fields, null or no
records, bytes too many or too few) is left to the handler as a whole, and nothing of it is stored here.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker._fast.log.batch_rules cimport takes_codec
from kbroker._fast.log.append_group cimport AppendGroup, Member, write_groups
from kbroker._fast.records.layout cimport ATTRIBUTES_POSITION, COMPRESSION_MASK
from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.net.direct cimport (
    MOST_REQUESTS, NAME_BYTES, DirectAnswers, DirectRequest, PartialAppend, put_size, put_topic
)
from kbroker._fast.base.growable cimport Growable, growable_free, growable_reserve
from kbroker._fast.log.log_fields cimport PartitionFields, acknowledges, after_append, has_min_isr
from kbroker._fast.base.monotonic cimport now_ns, wall_ms
from kbroker._fast.base.slices cimport Slices
from kbroker._fast.log.fast_append cimport append_at
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.requests.produce_rows cimport ProduceLayout, ProduceRows, begin_rows, needs_handler, next_row
from kbroker._fast.base.put cimport put8, put16, put32, put64

from kbroker._fast.net.route import NO_RESPONSE

cdef enum:
    REQUEST_TIMED_OUT = 7
    # Of an answer: what stands before and behind its topics; around a topic's name; of a partition.
    FRAME_BYTES = 24
    TOPIC_BYTES = NAME_BYTES + 16
    ROW_BYTES = 40
    # A request of more partitions is served in slices, by the handler.
    MOST_ROWS = 512

cdef object _NO_RESPONSE = NO_RESPONSE


cdef class ProduceVersions:
    """From which version on what is there; see `handlers.produce.versions`."""

    cdef ProduceLayout layout

    def __init__(self, *, int first, int last, int flexible, int topic_ids, int log_append_times, int log_starts,
                 int record_errors):
        self.layout = ProduceLayout(first=first, last=last, flexible=flexible, topic_ids=topic_ids,
                                    log_append_times=log_append_times, log_starts=log_starts,
                                    record_errors=record_errors)


cdef class FastProduce(DirectAnswers):
    """`internal`: the topics that clients may not write to.  `system_clock`: the type of a clock that gives the
    system's time, which is then read without it.  `finish`: see `PartialAppend`."""

    cdef frozenset internal
    cdef object system_clock
    cdef ProduceLayout layout
    cdef object finish
    cdef list groups

    def __init__(self, frozenset internal, system_clock, ProduceVersions versions not None, finish):
        self.internal = internal
        self.system_clock = system_clock
        self.layout = versions.layout
        self.finish = finish
        self.groups = []

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                       Gate gate):
        """The answer; a `Pending` while it may not be given yet; a `PartialAppend` where the handler has rows left.

        The services give the partitions that are led (`replica_manager.topics`, `.names`), the time, the loop and the
        length of a slice.
        """
        cdef ProduceRows rows
        cdef int count = self._count(version, data, size, &rows)
        if count == 0:
            return None
        begin_rows(&rows, &self.layout, version, data, size)
        if needs_handler(&rows, gate):
            return None
        if count == 1:
            return self._answer_one(services, version, correlation_id, &rows, gate)
        return self._answer_many(services, version, correlation_id, data, size, &rows, gate)

    cdef int _count(self, int version, const uint8_t* data, Py_ssize_t size, ProduceRows* rows) noexcept:
        """How many rows a plain request has; 0 for any other."""
        cdef int count = 0
        cdef int more
        if not self.layout.first <= version <= self.layout.last:
            return 0
        if not begin_rows(rows, &self.layout, version, data, size):
            return 0
        while True:
            more = next_row(rows)
            if more <= 0:
                return count if more == 0 else 0
            count += 1
            if count > MOST_ROWS:
                return 0

    cdef object _answer_one(self, object services, int version, int correlation_id, ProduceRows* rows, Gate gate):
        cdef PartitionFields partition
        cdef int64_t first, last
        next_row(rows)
        partition = self._partition_of(services.replica_manager, version, rows, gate)
        if partition is None:
            return None
        first = append_at(partition.log_, rows.records, rows.size, partition.leader_epoch, self._now_ms(services),
                          rows.transactional)
        if first < 0:
            return None
        last = partition.log_.local_.log_end_offset - 1
        after_append(partition)
        return self._acknowledge(version, correlation_id, rows, partition, first, last)

    cdef object _answer_many(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                             ProduceRows* rows, Gate gate):
        cdef object manager = services.replica_manager
        cdef int64_t now_ms = self._now_ms(services)
        cdef PartitionFields partition
        cdef list appended = []         # (partition, first, last), or None for a row that is left
        cdef list left = []             # partitions of such rows
        cdef bint acknowledged = True
        cdef int64_t first, last
        cdef Slices slices = services.slices
        cdef uint64_t slice_end = now_ns() + slices.slice_ns
        cdef bint late = False
        if not self._are_names(version, data, size, rows):
            return None
        while next_row(rows) > 0:
            partition = self._partition_of(manager, version, rows, gate)
            first = -1
            late = late or now_ns() >= slice_end
            if partition is not None and not late and partition not in left:
                first = append_at(partition.log_, rows.records, rows.size, partition.leader_epoch, now_ms,
                                  rows.transactional)
            if first < 0:
                appended.append(None)
                left.append(partition)
                continue
            last = partition.log_.local_.log_end_offset - 1
            after_append(partition)
            acknowledged = acknowledged and (rows.acks == 0 or acknowledges(partition, last, rows.acks < 0))
            appended.append((partition, first, last))
        if len(left) == len(appended):
            return None
        if left or not acknowledged:
            return PartialAppend(self.finish, [None if each is None else each[1:] for each in appended])
        if rows.acks == 0:
            return _NO_RESPONSE
        begin_rows(rows, &self.layout, version, data, size)
        return self._encode(version, correlation_id, rows, appended)

    cdef bint _are_names(self, int version, const uint8_t* data, Py_ssize_t size, ProduceRows* rows) except -1:
        """Whether the decoder will take the topics' names: it must not refuse a request of which a part is stored."""
        cdef bint sound = True
        while next_row(rows) > 0:
            if not rows.by_id and self.text(<const char*> rows.topic.data, rows.topic.size) is None:
                sound = False
        begin_rows(rows, &self.layout, version, data, size)
        return sound

    cdef bint may_wait(self, const DirectRequest* asked) noexcept:
        cdef ProduceRows rows
        return self._count(asked.version, asked.data, asked.size, &rows) == 1 and rows.acks != 0

    cdef list answer_all(self, object services, const DirectRequest* asked, int count, HelperPool helper_pool):
        """The batches for one log are written together, in the requests' order; helper threads take some logs."""
        cdef ProduceRows[MOST_REQUESTS] rows
        cdef int[MOST_REQUESTS] group_of       # of each request; -1 where there is none
        cdef int[MOST_REQUESTS] member_of      # its number there; -1 where the log does not take the batch as it is
        cdef int index, number
        cdef object manager = services.replica_manager
        cdef int64_t now_ms = self._now_ms(services)
        cdef list answers = [None] * count
        cdef list partitions = []
        try:
            for index in range(count):
                group_of[index] = member_of[index] = -1
                try:
                    self._gather(manager, &asked[index], &rows[index], now_ms, partitions,
                                 &group_of[index], &member_of[index])
                except Exception as error:
                    answers[index] = error
            write_groups(self.groups, len(partitions), helper_pool)
            for number in range(len(partitions)):
                self._finish_group(number, partitions[number], asked, rows, count, group_of, member_of, answers)
        finally:
            for number in range(len(partitions)):
                (<AppendGroup> self.groups[number]).undo()
                (<AppendGroup> self.groups[number]).clear()
        return answers

    @cython.nonecheck(True)
    cdef int _gather(self, object manager, const DirectRequest* asked, ProduceRows* rows, int64_t now_ms,
                     list partitions, int* group_of, int* member_of) except -1:
        """Adds the request's batch to the group of its partition, which is one of `partitions` then."""
        cdef PartitionFields partition
        cdef AppendGroup group
        cdef int number
        if (self._count(asked.version, asked.data, asked.size, rows) != 1 or rows.acks == 0
                or needs_handler(rows, <Gate> asked.gate)):
            return 0
        begin_rows(rows, &self.layout, asked.version, asked.data, asked.size)
        next_row(rows)
        partition = self._partition_of(manager, asked.version, rows, <Gate> asked.gate)
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
        if group.file is not None and group.add(rows.records, rows.size, rows.transactional):
            member_of[0] = group.group.count - 1
        return 0

    @cython.nonecheck(True)
    cdef int _finish_group(self, int number, PartitionFields partition, const DirectRequest* asked, ProduceRows* rows,
                           int count, const int* group_of, const int* member_of, list answers) except -1:
        """Sets the answers to the requests that were written to one partition; where that fails, each of its requests
        gets the exception."""
        cdef AppendGroup group = self.groups[number]
        cdef const Member* member
        cdef int index
        try:
            if not group.finish():
                return 0
            after_append(partition)
            for index in range(count):
                if group_of[index] == number and member_of[index] >= 0:
                    member = &group.group.members[member_of[index]]
                    if member.offset >= 0:
                        answers[index] = self._acknowledge(
                            asked[index].version, asked[index].correlation_id, &rows[index], partition,
                            member.offset, member.offset + member.header.last_offset_delta)
        except Exception as error:
            for index in range(count):
                if group_of[index] == number:
                    answers[index] = error
        return 0

    @cython.nonecheck(True)
    cdef PartitionFields _partition_of(self, object manager, int version, const ProduceRows* rows, Gate gate):
        """The partition that the row's batch goes to; None where the handler has to judge the row, as for an error, an
        internal topic, or one that the client may not write to."""
        cdef PartitionFields partition
        cdef object name = self.topic_name(&rows.topic, manager)
        cdef object led = manager.topics.get(name)
        if led is None or name in self.internal or (gate is not None and not gate.may_write(name)):
            return None
        partition = (<dict?> led).get(rows.index)
        if partition is None or (rows.acks < 0 and not has_min_isr(partition)):
            return None
        if rows.size > ATTRIBUTES_POSITION + 1 and not takes_codec(
            rows.records[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK, version
        ):
            return None
        return partition

    cdef int64_t _now_ms(self, services) except? -1:
        cdef object clock = services.clock
        return wall_ms() if type(clock) is self.system_clock else <int64_t> clock.now_ms()

    cdef object _acknowledge(self, int version, int correlation_id, const ProduceRows* rows,
                             PartitionFields partition, int64_t first, int64_t last):
        """The answer for one batch, `first` to `last`, or what gives it once the batch may be acknowledged."""
        cdef DelayedBatch delayed
        if rows.acks == 0:
            return _NO_RESPONSE
        if acknowledges(partition, last, rows.acks < 0):
            return self._encode_one(version, correlation_id, rows, 0, first, partition.log_.log_start_offset)
        delayed = DelayedBatch.__new__(DelayedBatch)
        delayed.path = self
        delayed.partition = partition
        delayed.rows = rows[0]
        delayed.topic = PyBytes_FromStringAndSize(<const char*> rows.topic.data, rows.topic.size)
        delayed.rows.topic.data = <const uint8_t*> PyBytes_AS_STRING(delayed.topic)
        delayed.rows.records = NULL
        delayed.version = version
        delayed.correlation_id = correlation_id
        delayed.first = first
        delayed.last = last
        return delayed

    cdef bytes _encode_one(self, int version, int correlation_id, const ProduceRows* rows, int code, int64_t first,
                           int64_t start):
        cdef uint8_t[FRAME_BYTES + TOPIC_BYTES + ROW_BYTES] frame
        cdef uint8_t* at = put_head(frame, rows.flexible, correlation_id, 1)
        at = put_topic(at, rows.flexible, &rows.topic)
        at = put_size(at, rows.flexible, 1)
        at = self._put_row(at, version, rows, code, first, start)
        at = put_tail(at, rows.flexible)
        put32(frame, <uint32_t> (at - frame - 4))
        return PyBytes_FromStringAndSize(<const char*> frame, at - frame)

    cdef bytes _encode(self, int version, int correlation_id, ProduceRows* rows, list appended):
        """What `encode_response` makes of a `ProduceResponse` with these partitions, all without an error."""
        cdef Growable out
        cdef PartitionFields partition
        cdef int64_t first
        cdef int index = 0
        out.data = NULL
        out.size = out.capacity = 0
        try:
            growable_reserve(&out, FRAME_BYTES)
            out.size = put_head(out.data, rows.flexible, correlation_id, rows.topics) - out.data
            while next_row(rows) > 0:
                growable_reserve(&out, TOPIC_BYTES + ROW_BYTES)
                if rows.rows + 1 == rows.rows_of_topic:
                    out.size = put_size(put_topic(out.data + out.size, rows.flexible, &rows.topic),
                                        rows.flexible, rows.rows_of_topic) - out.data
                partition, first, _ = appended[index]
                index += 1
                out.size = self._put_row(out.data + out.size, version, rows, 0, first,
                                         partition.log_.log_start_offset) - out.data
            growable_reserve(&out, FRAME_BYTES)
            out.size = put_tail(out.data + out.size, rows.flexible) - out.data
            put32(out.data, <uint32_t> (out.size - 4))
            return PyBytes_FromStringAndSize(<const char*> out.data, out.size)
        finally:
            growable_free(&out)

    cdef uint8_t* _put_row(self, uint8_t* at, int version, const ProduceRows* rows, int code, int64_t first,
                           int64_t start) noexcept:
        """A partition, ROW_BYTES at most, and the end of its topic behind the last one."""
        at = put32(at, <uint32_t> rows.index)
        at = put16(at, <uint16_t> code)
        at = put64(at, first)
        if version >= self.layout.log_append_times:
            at = put64(at, -1)
        if version >= self.layout.log_starts:
            at = put64(at, start)
        if version >= self.layout.record_errors:
            at = put_size(at, rows.flexible, 0)
            at = put8(at, 0) if rows.flexible else put16(at, 0xFFFF)    # error_message: null
        if rows.flexible:
            at = put8(at, 0)            # no tagged fields
            if rows.rows == 0:
                at = put8(at, 0)        # nor of the topic
        return at


cdef inline uint8_t* put_head(uint8_t* frame, bint flexible, int correlation_id, Py_ssize_t topics) noexcept:
    """Room for the length, and what stands before the first topic."""
    cdef uint8_t* at = put32(frame + 4, <uint32_t> correlation_id)
    if flexible:
        at = put8(at, 0)                # no tagged fields in the header
    return put_size(at, flexible, topics)


cdef inline uint8_t* put_tail(uint8_t* at, bint flexible) noexcept:
    at = put32(at, 0)                   # throttle_time_ms
    return put8(at, 0) if flexible else at


cdef class DelayedBatch(Pending):
    """The answer for one batch that is appended and may not be acknowledged yet (`Partition.wait`)."""

    cdef FastProduce path
    cdef PartitionFields partition
    cdef ProduceRows rows
    cdef bytes topic        # what `rows.topic` points into
    cdef int version
    cdef int correlation_id
    cdef int64_t first
    cdef int64_t last

    def started(self) -> None:
        (<object> self.partition).wait(self.last, self.rows.acks < 0, self.settled)
        if not self.done:
            self.expire_after(self.ctx.services.loop, max(0, self.rows.timeout_ms))

    def settled(self, error) -> None:
        """`error` is None when the batch is committed, else the KafkaError that says why it is not, or that this is not
        known."""
        cdef int64_t start = self.partition.log_.log_start_offset
        cdef bint stored = error is None or error.leaves_stored
        self._answer(0 if error is None else error.code, self.first if stored else -1, start if stored else -1)

    def expired(self) -> None:
        self._answer(REQUEST_TIMED_OUT, self.first, self.partition.log_.log_start_offset)

    cdef int _answer(self, int code, int64_t first, int64_t start) except -1:
        return self._end(self.path._encode_one(self.version, self.correlation_id, &self.rows, code, first, start),
                         True)
