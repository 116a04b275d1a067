"""Incremental fetches (KIP-227), answered from their bytes.

A client with a session, as Java's consumers have, names in each fetch the partitions only of which it wants something
else than before, and is told of those only that have news.  Nothing is changed unless the fetch is answered here, or
waits: what it asks anew is tried, and taken back where the handler has to serve it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, uint8_t

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_int32, cursor_left, cursor_uvarint
from kbroker._fast.net.direct cimport Topic, read_size, read_topic
from kbroker._fast.log.fetch_target cimport FetchTarget, place, worth_reading
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.log.log_fields cimport PartitionFields
from kbroker._fast.requests.many_fetch cimport FetchAnswer, ManyFetch
from kbroker._fast.requests.one_partition cimport (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    LAST_VERSION,
    OnePartition,
    Stretch,
    read_limits,
    read_row,
    read_tail,
)
from kbroker._fast.requests.ordinary_fetch cimport UNKNOWN, OrdinaryFetch, WaitingFetch

cdef extern from *:
    const char* text_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t* size) except NULL


cdef class SessionFetch(ManyFetch):
    """What `ManyFetch` does, and incremental fetches.

    `resume(ctx, request, session, targets)` gives the handler's answer to one that has waited.
    """

    cdef object resume
    cdef Step step      # of the fetch that may wait

    def __init__(self, partition_data, file_system, resume):
        ManyFetch.__init__(self, partition_data, file_system)
        self.resume = resume

    cdef object serve(self, object services, int version, int correlation_id, const uint8_t* data, Py_ssize_t size,
                      bint force):
        cdef Step step
        cdef object frame
        self.step = None
        frame = ManyFetch.serve(self, services, version, correlation_id, data, size, force)
        if frame is not None or self.of_one:
            return frame
        step = Step()
        if not step.read(self, services, version, data, size):
            return None
        frame = None
        step.swap()
        try:
            frame = step.serve(self, services, version, correlation_id, force)
        finally:
            if frame is None or frame is False:
                step.swap_back()
        if frame is False:
            self.step = step
            self.found_too_little(step.asked.max_wait_ms, [], step.places)
        elif frame is not None:
            step.session.advance(services.clock.now_ms())
        return frame

    cdef WaitingFetch waiting(self, object services):
        cdef WaitingInSession fetch
        if self.step is None:
            return ManyFetch.waiting(self, services)
        fetch = WaitingInSession.__new__(WaitingInSession)
        fetch.step, self.step = self.step, None
        fetch.step.swap()
        fetch.step.session.advance(services.clock.now_ms())
        return fetch


cdef class WaitingInSession(WaitingFetch):
    cdef Step step

    cdef object serve(self, bint force):
        return self.step.serve(self.reader, self.ctx.services, self.version, self.correlation_id, force)

    cdef int resume(self, object request) except -1:
        self.ctx.take((<SessionFetch> self.reader).resume(self.ctx, request, self.step.session, self.step.targets))
        return 0


cdef class Step:
    """What a fetch changes in its session, and all that it asks for then."""

    cdef OnePartition asked
    cdef object session
    cdef list targets       # of the session, in the order in which they are read
    cdef list changed       # targets of the session
    cdef list changes       # what each is to ask for
    cdef tuple places       # where the fetch may wait

    cdef bint read(self, OrdinaryFetch reader, object services, int version, const uint8_t* data,
                   Py_ssize_t size) except -1:
        """Read a request to its last byte; False where it is not the ordinary one of a session in order."""
        cdef Cursor cursor
        cdef Py_ssize_t topics
        cdef int32_t session_id, epoch
        cdef bint by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        cursor_init(&cursor, data, size)
        if not FIRST_VERSION_WITH_SESSIONS <= version <= LAST_VERSION:
            return False
        if not read_limits(&cursor, version, &self.asked):
            return False
        session_id = cursor_int32(&cursor)
        epoch = cursor_int32(&cursor)
        topics = read_size(&cursor, version >= FIRST_FLEXIBLE_VERSION)
        if not 0 <= topics <= cursor_left(&cursor):
            return False
        self.session = services.fetch_sessions.get(session_id)
        if self.session is None or self.session.epoch != epoch or self.session.uses_topic_ids != by_id:
            return False
        self.changed = []
        self.changes = []
        for _ in range(topics):
            if not self._read_topic(reader, services.replica_manager, version, &cursor):
                return False
        if not read_tail(&cursor, version):
            return False
        self.targets = list((<dict?> self.session.targets).values())
        return True

    cdef bint _read_topic(self, OrdinaryFetch reader, object manager, int version, Cursor* cursor) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
        cdef dict known = self.session.targets
        cdef FetchTarget target, change
        cdef object key
        cdef Py_ssize_t rows
        if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &self.asked.topic):
            return False
        if self.asked.topic.is_id:
            key = PyBytes_FromStringAndSize(<const char*> self.asked.topic.data, self.asked.topic.size)
        else:
            key = reader.topic_name(&self.asked.topic, manager)
        rows = read_size(cursor, flexible)
        if not 0 <= rows <= cursor_left(cursor):
            return False
        for _ in range(rows):
            if not read_row(cursor, version, &self.asked):
                return False
            target = known.get((key, self.asked.index))
            if target is None:
                return False
            change = FetchTarget.__new__(FetchTarget)
            change.fetch_offset = self.asked.offset
            change.max_bytes = self.asked.partition_max_bytes
            change.current_leader_epoch = self.asked.leader_epoch
            change.last_fetched_epoch = -1
            self.changed.append(target)
            self.changes.append(change)
        return not flexible or cursor_uvarint(cursor) == 0      # no tagged fields

    cdef int swap(self) except -1:
        """Have the session ask for what the fetch says."""
        cdef Py_ssize_t index
        for index in range(len(self.changed)):
            (<FetchTarget> self.changed[index]).exchange(<FetchTarget> self.changes[index])
        return 0

    cdef int swap_back(self) except -1:
        cdef Py_ssize_t index
        for index in range(len(self.changed) - 1, -1, -1):
            (<FetchTarget> self.changed[index]).exchange(<FetchTarget> self.changes[index])
        return 0

    cdef object serve(self, OrdinaryFetch reader, object services, int version, int correlation_id, bint force):
        """The answer; None where the handler decides, False where there is not enough yet, unless `force`."""
        cdef IncrementalAnswer answer = IncrementalAnswer()
        cdef object manager = services.replica_manager
        cdef bint by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        cdef list read, resting
        answer.asked = self.asked
        if not answer.set_limits(services):
            return None
        read, resting = worth_reading(self.targets, manager.topics, manager.names, by_id, True)
        if not answer.look_at(reader, read, manager.topics, manager.names, by_id):
            return None
        if answer.total < answer.asked.min_bytes and self.asked.max_wait_ms > 0 and not force:
            self.places = tuple(resting + answer.partitions)
            return False
        return answer.written(services.fetch_sessions, self.session, version, correlation_id)


cdef class News:
    """What is to be told of a partition."""

    cdef FetchTarget target
    cdef Stretch found
    cdef FileRegion records


cdef class IncrementalAnswer(FetchAnswer):
    """One look at those partitions of a session that may have something to tell."""

    cdef dict news          # of each topic, by its key in the session
    cdef list full          # the targets that get records

    cdef bint look_at(self, OrdinaryFetch reader, list targets, dict topics, dict names, bint by_id) except -1:
        """False where the handler has to do it."""
        cdef FetchTarget target
        cdef PartitionFields partition
        cdef FileRegion records
        cdef Stretch found
        self.news = {}
        self.full = []
        for target in targets:
            partition = place(target, topics, names, by_id)
            if partition is None:
                return False
            self.asked.offset = target.fetch_offset
            self.asked.partition_max_bytes = target.max_bytes
            records = self.look(reader, partition.log_, &found)
            if found.size == UNKNOWN:
                return False
            self.partitions.append(partition)
            if target.is_news(found.size, found.high_watermark, found.log_start_offset):
                self._add(target, &found, records, by_id)
        return True

    cdef int _add(self, FetchTarget target, const Stretch* found, FileRegion records, bint by_id) except -1:
        cdef News news = News.__new__(News)
        cdef object key = target.topic_id if by_id else target.topic
        news.target = target
        news.found = found[0]
        news.records = records
        if records is not None:
            self.full.append(target)
        if key in self.news:
            self.news[key].append(news)
        else:
            self.news[key] = [news]
        return 0

    cdef object written(self, object sessions, object session, int version, int correlation_id):
        """The answer; what it tells is remembered, and read last of all by the next fetch."""
        cdef News news
        cdef Topic topic
        cdef list rows
        if self.total > INT32_MAX // 2:
            return None     # too long, perhaps
        self.begin(version, correlation_id, session.session_id, len(self.news))
        for key, rows in self.news.items():
            name_topic(key, &topic)
            self.begin_topic(version, &topic, len(rows))
            for news in rows:
                news.target.tell(news.found.high_watermark, news.found.log_start_offset)
                self.asked.index = news.target.index
                self.put_partition(version, &news.found, news.records)
            self.put_tags(version)
        if self.full:
            sessions.rotate(session, self.full)
        return self.end(version)


cdef int name_topic(object key, Topic* topic) except -1:
    topic.is_id = isinstance(key, bytes)
    if topic.is_id:
        topic.data = <const uint8_t*> PyBytes_AS_STRING(key)
        topic.size = PyBytes_GET_SIZE(key)
    else:
        topic.data = <const uint8_t*> text_of(key, &topic.size)
    return 0
