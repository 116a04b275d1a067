"""The ordinary read and the ordinary fetch, each in one call.

Most fetches go on where the one before ended, in a log without open transactions whose records are all visible.  Those
are served here; for whatever is out of the ordinary the answer is None, nothing has been changed, and the handler in
Python serves it, errors included.  What is ordinary gets the answer that the handler would give.
"""

from functools import partial

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker._fast.batch_seek cimport HEADER_BYTES, SEEN, FollowUps, Seen, see
from kbroker._fast.cursor cimport Cursor, cursor_init
from kbroker._fast.direct cimport DirectAnswers
from kbroker._fast.file_region cimport FileRegion
from kbroker._fast.index cimport TailBatch, load64
from kbroker._fast.log_fields cimport FileFields, LocalLogFields, LogFields, PartitionFields, SegmentFields
from kbroker._fast.monotonic cimport now_ns
from kbroker._fast.one_partition cimport (
    FIRST_VERSION,
    LAST_VERSION,
    OnePartition,
    Stretch,
    encode_answer,
    read_one_partition,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)

cdef enum:
    UNKNOWN = -1        # a size


cdef bint read_request(OnePartition* asked, int version, uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Cursor cursor
    cursor_init(&cursor, data, size)
    return FIRST_VERSION <= version <= LAST_VERSION and read_one_partition(&cursor, version, asked)


cdef class OrdinaryFetch(DirectAnswers):
    """`partition_data` is the struct of a partition's answer.

    `file_system`: the type whose calls may be made here directly; logs on any other are never ordinary.
    """

    cdef object partition_data
    cdef object file_system

    def __init__(self, partition_data, file_system):
        self.partition_data = partition_data
        self.file_system = file_system

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer to a fetch of one partition without a session."""
        cdef OnePartition asked
        cdef Stretch found
        cdef FileFields file
        cdef object name
        if not read_request(&asked, version, data, size):
            return None
        name = self.topic_name(&asked.topic, services.replica_manager)
        try:
            file = self._look(services, name, &asked, &found)
        except OSError:
            return None     # the handler meets it again, tells the client, and whoever watches the disk
        if file is None or found.size < asked.min_bytes:
            return None
        return encode_answer(version, correlation_id, &asked, &found, file)

    cdef bint wait(self, object ctx, int version, int correlation_id, uint8_t* data, Py_ssize_t size) except -1:
        """Let a fetch wait in the purgatory for more records, or for its time to be up, where that is ordinary."""
        cdef WaitingFetch fetch
        cdef OnePartition asked
        cdef Stretch found
        cdef object name, manager, purgatory
        if not read_request(&asked, version, data, size) or asked.max_wait_ms <= 0:
            return False
        manager = ctx.services.replica_manager
        name = self.topic_name(&asked.topic, manager)
        try:
            self._look(ctx.services, name, &asked, &found)
        except OSError:
            return False
        if not 0 <= found.size < asked.min_bytes:
            return False
        fetch = WaitingFetch.__new__(WaitingFetch)
        fetch.reader = self
        fetch.ctx = ctx
        fetch.version = version
        fetch.correlation_id = correlation_id
        fetch.name = name
        fetch.request = PyBytes_FromStringAndSize(<const char*> data, size)
        fetch.asked = asked
        fetch.asked.topic.data = <uint8_t*> PyBytes_AS_STRING(fetch.request) + (asked.topic.data - data)
        fetch.until_ns = now_ns() + <uint64_t> asked.max_wait_ms * 1000000
        purgatory = manager.purgatory
        ctx.abandoned = partial(
            purgatory.forget,
            purgatory.wait(fetch.attempt, (manager.topics[name][asked.index],), asked.max_wait_ms),
        )
        return True

    @cython.nonecheck(True)
    cdef FileFields _look(self, object services, object name, OnePartition* asked, Stretch* found):
        """What there is to send: as `_find`."""
        cdef PartitionFields partition
        cdef int64_t most
        cdef object led = services.replica_manager.topics.get(name)
        found.size = UNKNOWN
        if led is None:
            return None
        partition = (<dict?> led).get(asked.index)
        if partition is None or (asked.leader_epoch >= 0 and asked.leader_epoch != partition.leader_epoch):
            return None
        most = min(<int64_t> asked.max_bytes, <int64_t> services.fetch_max_bytes)
        asked.min_bytes = <int32_t> min(<int64_t> asked.min_bytes, most)
        return self._find(partition.log_, asked.offset, min(<int64_t> asked.partition_max_bytes, most), True,
                          asked.committed, found)

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
        """Where the records are; None with a size of 0 where there are none yet, with UNKNOWN for the log to say."""
        cdef LocalLogFields local = log.local_
        cdef SegmentFields segment
        cdef FileFields file
        cdef int64_t size, end
        cdef const TailBatch* batch = NULL
        found.size = UNKNOWN
        found.high_watermark = log.high_watermark
        found.log_start_offset = log.log_start_offset
        if limit < 0 or log.high_watermark != local.log_end_offset or offset < log.log_start_offset:
            return None
        if offset > local.log_end_offset or log.producer_state_.first_unstable_offset is not None:
            return None
        if type(local.environment_.files) is not self.file_system:
            return None
        if offset == local.log_end_offset:
            found.size = 0
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


cdef class WaitingFetch:
    """A fetch that waits, kept as the bytes that it came in; `ctx` is where its answer goes."""

    cdef OrdinaryFetch reader
    cdef object ctx
    cdef int version
    cdef int correlation_id
    cdef object name
    cdef bytes request
    cdef OnePartition asked     # its topic lies in `request`
    cdef uint64_t until_ns

    def attempt(self, bint force) -> bool:
        """Answer when there is enough, or in any case when `force`; whether nobody has to look at it any more."""
        cdef Stretch found
        cdef FileFields file
        if not self.ctx.open:
            return True
        try:
            file = self.reader._look(self.ctx.services, self.name, &self.asked, &found)
        except OSError:
            return self._hand_over(force)
        if found.size == UNKNOWN:
            return self._hand_over(force)
        if found.size < self.asked.min_bytes and not force:
            return False
        self.ctx.respond_frame(encode_answer(self.version, self.correlation_id, &self.asked, &found, file))
        return True

    cdef bint _hand_over(self, bint force) except -1:
        """Something is out of the ordinary now: the handler goes on, for as long as there is time."""
        cdef uint64_t now = now_ns()
        cdef object request = self.ctx.decode(self.request)
        request.max_wait_ms = 0 if force or now >= self.until_ns else (self.until_ns - now) // 1000000 + 1
        request.topics[0].topic = self.name     # whoever asked by id is told of the topic that had it
        self.ctx.handle(request)
        return True


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
