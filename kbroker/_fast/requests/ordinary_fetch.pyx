"""The ordinary read and the ordinary fetch, each in one call.

Most fetches go on where the one before ended, in a log without open transactions whose records are all visible.  Those
are served here; for whatever is out of the ordinary the answer is None, nothing has been changed, and the handler in
Python serves it, errors included.  What is ordinary gets the answer that the handler would give.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kbroker._fast.log.batch_seek cimport HEADER_BYTES, SEEN, Seen, see
from kbroker._fast.base.cursor cimport Cursor, cursor_init
from kbroker._fast.net.direct cimport NAME_BYTES, DirectAnswers
from kbroker._fast.files.file_read cimport read_cached
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.log.index cimport TailBatch, load64
from kbroker._fast.log.log_fields cimport (
    FileFields,
    LocalLogFields,
    LogFields,
    PartitionFields,
    SegmentFields,
    led_partition,
)
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.requests.one_partition cimport (
    ANSWER_BYTES,
    FIRST_VERSION,
    LAST_VERSION,
    NO_TAGS,
    OnePartition,
    Stretch,
    encode_answer,
    put_head,
    read_one_partition,
    tags_behind,
)
from kbroker._fast.net.sender cimport JOIN_BYTES

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)

cdef enum:
    HEAD_BYTES = ANSWER_BYTES + NAME_BYTES


cdef bint read_request(OnePartition* asked, int version, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Cursor cursor
    cursor_init(&cursor, data, size)
    return FIRST_VERSION <= version <= LAST_VERSION and read_one_partition(&cursor, version, asked)


cdef class OrdinaryFetch(DirectAnswers):
    """`partition_data` is the struct of a partition's answer.

    `file_system`: the type whose calls may be made here directly; logs on any other are never ordinary.
    Where `serve` has just found too little, `places`, `names` and `wait_ms` say where and how long the fetch may wait.
    """

    def __init__(self, partition_data, file_system):
        self.partition_data = partition_data
        self.file_system = file_system

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer to a fetch without a session, of one partition here; what waits where there is too little yet."""
        cdef object frame
        try:
            frame = self.serve(services, version, correlation_id, data, size, False)
        except OSError:
            return None     # the handler meets it again, tells the client, and whoever watches the disk
        return self._wait(services, version, correlation_id, data, size) if frame is False else frame

    cdef WaitingFetch _wait(self, object services, int version, int correlation_id, const uint8_t* data,
                            Py_ssize_t size):
        """A fetch for which there is too little, to wait for more or for its time to be up; None where it may not."""
        cdef WaitingFetch fetch
        cdef tuple places = self.places
        self.places = None
        if places is None or self.wait_ms <= 0:
            return None
        fetch = self.waiting(services)
        fetch.purgatory = services.replica_manager.purgatory
        fetch.partitions = places
        fetch.wait_ms = self.wait_ms
        fetch.reader = self
        fetch.version = version
        fetch.correlation_id = correlation_id
        fetch.names = self.names
        fetch.request = PyBytes_FromStringAndSize(<const char*> data, size)
        fetch.until_ns = now_ns() + <uint64_t> self.wait_ms * 1000000
        return fetch

    cdef object serve(self, object services, int version, int correlation_id, const uint8_t* data, Py_ssize_t size,
                      bint force):
        """The answer; None where the handler decides, False where there is not enough yet, unless `force`."""
        cdef OnePartition asked
        cdef object manager = services.replica_manager
        cdef object name, frame
        self.places = None
        self.of_one = read_request(&asked, version, data, size)
        if not self.of_one:
            return None
        name = self.topic_name(&asked.topic, manager)
        frame = self._serve_one(services, name, version, correlation_id, &asked, force)
        if frame is False:
            self.found_too_little(asked.max_wait_ms, [name], (manager.topics[name][asked.index],))
        return frame

    cdef WaitingFetch waiting(self, object services):
        """What is kept of a fetch for which `serve` found too little."""
        return WaitingFetch.__new__(WaitingFetch)

    cdef void found_too_little(self, int wait_ms, list names, tuple places) noexcept:
        self.wait_ms = wait_ms
        self.names = names
        self.places = places

    cdef object _serve_one(self, object services, object name, int version, int correlation_id, OnePartition* asked,
                           bint force):
        """As `serve`."""
        cdef Stretch found
        cdef SegmentFields segment = self._look(services, name, asked, &found)
        cdef object frame
        if found.size == UNKNOWN or found.size > INT32_MAX - HEAD_BYTES:
            return None
        if segment is not None:
            if asked.min_bytes <= found.size:
                frame = small_answer(version, correlation_id, asked, &found, segment)
                if frame is not None:
                    return frame
            if not confirm(segment, asked.offset, asked.partition_max_bytes, True, &found):
                return None
        if found.size < asked.min_bytes and not force:
            return False
        return encode_answer(version, correlation_id, asked, &found, None if segment is None else segment.open_file_)

    @cython.nonecheck(True)
    cdef SegmentFields _look(self, object services, object name, OnePartition* asked, Stretch* found):
        """As `find`; the sizes asked for are cut to what the broker gives at most."""
        cdef PartitionFields partition
        cdef int64_t most
        found.size = UNKNOWN
        partition = led_partition(services.replica_manager.topics.get(name), asked.index, asked.leader_epoch)
        if partition is None:
            return None
        most = min(<int64_t> asked.max_bytes, <int64_t> services.fetch_max_bytes)
        asked.min_bytes = <int32_t> min(<int64_t> asked.min_bytes, most)
        asked.partition_max_bytes = <int32_t> min(<int64_t> asked.partition_max_bytes, most)
        return self.find(partition.log_, asked.offset, asked.partition_max_bytes, asked.committed, found)

    def read(self, LogFields log not None, index, int64_t offset, int64_t limit, bint at_least_one, bint committed):
        """The answer of one partition with records from `offset` on, at most `limit` bytes of them; or None.

        With `at_least_one` the first batch comes whole, whatever its size.  `committed`: no records of transactions
        that are open or were aborted.
        """
        cdef Stretch found
        cdef SegmentFields segment = self.find(log, offset, limit, committed, &found)
        cdef FileFields file
        if segment is None or not confirm(segment, offset, limit, at_least_one, &found):
            return None
        file = segment.open_file_
        return self.partition_data(
            partition_index=index,
            high_watermark=found.high_watermark,
            last_stable_offset=found.high_watermark,
            log_start_offset=found.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=FileRegion(file.fd, found.position, found.size, file),
        )

    @cython.nonecheck(True)
    cdef SegmentFields find(self, LogFields log, int64_t offset, int64_t limit, bint committed, Stretch* found):
        """Where the records are, with the segment's file open; `confirm` says whether they are there.

        The file stays open for as long as no Python code is run; whoever does that holds it.
        None with a size of 0 where there are none yet, with UNKNOWN where the log has to say.
        """
        cdef LocalLogFields local = log.local_
        cdef SegmentFields segment
        cdef const TailBatch* batch = NULL
        found.size = UNKNOWN
        found.high_watermark = log.high_watermark
        found.log_start_offset = log.log_start_offset
        if limit < 0 or offset < log.log_start_offset:
            return None
        if offset > local.log_end_offset or log.producer_state_.first_unstable_offset is not None:
            return None
        if type(local.environment_.files) is not self.file_system:
            return None
        if offset >= log.high_watermark:
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
        if segment.is_damaged:
            return None     # the log knows which stretches can be read
        if segment.open_file_ is None:
            (<object> segment).file()
        segment.recently_used = True
        found.end = visible_end(log, segment)
        if found.end < 0:
            return None
        if segment.tail is not None:
            batch = segment.tail.batch_of(offset)
        if batch != NULL:
            found.position = batch.position
            found.first = batch.size
        else:
            found.position = -1 if segment.follow_ups is None else segment.follow_ups.position_of(offset)
            found.first = UNKNOWN
            if found.position < 0 or found.position >= found.end:
                return None
        if segment.open_file_ is None:
            return None     # another thread has had to make room, while Python was asked for something
        found.size = min(limit, found.end - found.position)
        return segment


@cython.nonecheck(True)
cdef int64_t visible_end(LogFields log, SegmentFields segment) except -2:
    """The position in the segment's file up to which everything is below the high watermark; -1 where the log says."""
    cdef LocalLogFields local = log.local_
    cdef const TailBatch* batch
    if log.high_watermark < local.log_end_offset:
        if segment is local.segments_.active_:
            if segment.tail is None:
                return -1
            batch = segment.tail.batch_of(log.high_watermark)
            return batch.position if batch != NULL and batch.base_offset == log.high_watermark else -1
        if log.high_watermark < local.segments_.active_.base_offset:
            return -1
    return segment.tail.size if segment.tail is not None else <int64_t> (<object> segment).size


cdef class WaitingFetch(DelayedFetch):
    """A fetch that waits, kept as the bytes that it came in."""

    def attempt(self, force) -> bool:
        cdef object frame = None
        try:
            frame = self.serve(force)
        except OSError:
            pass    # the handler meets it again
        if frame is None:
            self.hand_over(force)
        elif frame is not False:
            self._end(frame, True)
        return frame is not False

    cdef object serve(self, bint force):
        """As `OrdinaryFetch.serve`."""
        cdef object frame = self.reader.serve(self.ctx.services, self.version, self.correlation_id,
                                              <uint8_t*> PyBytes_AS_STRING(self.request),
                                              PyBytes_GET_SIZE(self.request), force)
        self.reader.places = None
        return frame

    cdef int hand_over(self, bint force) except -1:
        """Something is out of the ordinary now: the handler goes on, for as long as there is time."""
        cdef uint64_t now = now_ns()
        self.release()
        cdef object request = self.ctx.decode(self.request)
        request.max_wait_ms = 0 if force or now >= self.until_ns else (self.until_ns - now) // 1000000 + 1
        self.resume(request)
        return 0

    cdef int resume(self, object request) except -1:
        """Let the handler serve it as if it had just come."""
        for topic, name in zip(request.topics, self.names):
            topic.topic = name      # whoever asked by id is told of the topic that had it
        self.ctx.handle(request)
        return 0


cdef bint confirm(SegmentFields segment, int64_t offset, int64_t limit, bint at_least_one, Stretch* found) noexcept:
    """Whether what was found is there, which takes a look at the first batch, and may be sent; its size, finally."""
    cdef uint8_t header[HEADER_BYTES]
    cdef Seen first
    if found.first == UNKNOWN:
        if pread(segment.open_file_.fd, header, HEADER_BYTES, found.position) != HEADER_BYTES:
            return False
        if not is_first(header, HEADER_BYTES, offset, found, &first):
            return False
        found.first = first.size
        segment.follow_ups.add(first.last + 1, found.position + first.size)
    if found.first > limit:
        if not at_least_one:
            return False
        found.size = found.first
    return True


cdef bint is_first(const uint8_t* header, Py_ssize_t got, int64_t offset, const Stretch* found, Seen* first) noexcept:
    """Whether this is a batch that begins with or holds `offset`, and ends within the file."""
    return (see(header, got, first) == SEEN and load64(header) <= first.last and offset <= first.last
            and first.size <= found.end - found.position)


cdef bint note_next(SegmentFields segment, const uint8_t* records, int64_t offset, const Stretch* found) noexcept:
    """Whether the records begin with the whole batch of `offset`; the place behind the last whole one is kept.

    A consumer's next fetch begins there.
    """
    cdef Seen batch
    cdef int64_t last
    cdef int64_t at = 0
    if not is_first(records, found.size, offset, found, &batch) or batch.size > found.size:
        return False
    while True:
        last = batch.last
        at += batch.size
        if see(records + at, found.size - at, &batch) != SEEN or batch.size > found.size - at or batch.last <= last:
            segment.follow_ups.add(last + 1, found.position + at)
            return True


cdef bytes small_answer(int version, int correlation_id, const OnePartition* asked, Stretch* found,
                        SegmentFields segment):
    """The answer as one byte string, records and all, read without a look at them before; None if that cannot be."""
    cdef uint8_t[HEAD_BYTES] head
    cdef Py_ssize_t before, behind
    cdef bytes frame
    cdef uint8_t* records
    if found.size > JOIN_BYTES - HEAD_BYTES - NO_TAGS or found.first > found.size:
        return None
    before = put_head(head, version, correlation_id, asked, found)
    behind = tags_behind(version)
    frame = PyBytes_FromStringAndSize(NULL, before + found.size + behind)
    records = <uint8_t*> PyBytes_AS_STRING(frame) + before
    if not read_cached(segment.open_file_.fd, records, found.size, found.position):
        return None
    if found.first == UNKNOWN and not note_next(segment, records, asked.offset, found):
        return None
    memcpy(records - before, head, before)
    memset(records + found.size, 0, behind)
    return frame
