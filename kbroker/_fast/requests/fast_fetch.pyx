"""Fetch on the fast path: read from the request's bytes, row by row, into the answer's.

A fetch without a session is answered row by row (`DelayedRows` while there is too little), one of a session in order by
its targets (`targets_read`).  Each partition is read in C, or alone by Python (`fetch_answer`).  A request that is not
plain by its form (of a follower, with tagged fields or partitions to forget, one that begins or ends a session, a
partition named twice, bytes too many or too few) is left to the handler as a whole, and nothing has been changed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_left, cursor_uvarint
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.log.fetch_target cimport FetchTarget
from kbroker._fast.log.log_fields cimport PartitionFields, led_partition
from kbroker._fast.net.direct cimport DirectAnswers, Topic, read_size, read_topic
from kbroker._fast.net.pending cimport DelayedFetch
from kbroker._fast.requests.fetch_answer cimport FetchAnswer, FetchRules
from kbroker._fast.requests.fetch_rows cimport (
    FINAL_EPOCH,
    LEAST_ROW_BYTES,
    NO_SESSION,
    FetchHead,
    FetchRow,
    Found,
    read_head,
    read_row,
    read_tail,
)
from kbroker._fast.requests.targets_read cimport TargetsRead

cdef enum:
    # A request of more partitions, or with more that Python has to read, is served in slices, by the handler.
    MOST_ROWS = 65536
    MOST_ALONE = 256

cdef uint64_t fetches = 0       # numbers them

cdef bytes NO_ID = bytes(16)


cdef class FastFetch(DirectAnswers):
    """See the module."""

    cdef readonly FetchRules rules
    # Of the request at hand:
    cdef set named              # topics, and partitions that are not led here
    cdef Py_ssize_t rows_left
    cdef Py_ssize_t alone_left

    def __init__(self, FetchRules rules not None):
        self.rules = rules

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer; a `Pending` while there is too little."""
        cdef Cursor cursor
        cdef FetchHead head
        cursor_init(&cursor, data, size)
        if not self.rules.layout.first <= version <= self.rules.layout.last:
            return None
        if version >= self.rules.layout.racks and services.replica_manager.selector is not None:
            return None     # where the client stands is written behind the topics
        if not read_head(&cursor, &self.rules.layout, version, &head):
            return None
        if head.session_id == NO_SESSION and head.session_epoch == FINAL_EPOCH:
            return self._answer_rows(services, version, correlation_id, data, size, &cursor, &head)
        return self._answer_session(services, version, correlation_id, &cursor, &head)

    # Without a session

    cdef object _answer_rows(self, object services, int version, int correlation_id, const uint8_t* data,
                             Py_ssize_t size, Cursor* cursor, const FetchHead* head):
        cdef DelayedRows fetch
        cdef Cursor topics = cursor[0]
        cdef FetchAnswer answer = self.read_rows(services, version, correlation_id, cursor, head, None)
        if answer is None:
            return None
        if answer.has_enough(head.max_wait_ms, False):
            return answer.end()
        fetch = DelayedRows.__new__(DelayedRows)
        fetch.purgatory = services.replica_manager.purgatory
        fetch.sources = answer.all_waiting()
        fetch.wait_ms = head.max_wait_ms
        fetch.path = self
        fetch.version = version
        fetch.correlation_id = correlation_id
        fetch.names = self._names(services.replica_manager, version, &topics)
        fetch.request = PyBytes_FromStringAndSize(<const char*> data, size)
        fetch.until_ns = now_ns() + <uint64_t> head.max_wait_ms * 1000000
        return fetch

    cdef list _names(self, object manager, int version, Cursor* cursor):
        """The names of the topics of a plain request: one that has gone by the end of the wait is answered by name."""
        cdef bint flexible = version >= self.rules.layout.flexible
        cdef list names = []
        cdef Topic topic
        cdef FetchRow row
        for _ in range(read_size(cursor, flexible)):
            read_topic(cursor, flexible, version >= self.rules.layout.topic_ids, &topic)
            names.append(self.topic_name(&topic, manager))
            for _ in range(read_size(cursor, flexible)):
                read_row(cursor, &self.rules.layout, version, &row)
            if flexible:
                cursor_uvarint(cursor)
        return names

    cdef FetchAnswer read_rows(self, object services, int version, int correlation_id, Cursor* cursor,
                               const FetchHead* head, list names):
        """The answer to the topics behind the head, but for its end; None for a request that is not plain.

        `names`: of the topics, where they are known already.
        """
        global fetches
        cdef bint flexible = version >= self.rules.layout.flexible
        cdef FetchAnswer answer = FetchAnswer.__new__(FetchAnswer)
        cdef Py_ssize_t topics = read_size(cursor, flexible)
        cdef Py_ssize_t number
        if not 0 < topics <= cursor_left(cursor):
            return None
        answer.rules = self.rules
        answer.services = services
        answer.version = version
        answer.replica_id = -1
        answer.written_at_once = True
        answer.set_limits(head)
        answer.begin(correlation_id, NO_SESSION, topics)
        fetches += 1
        self.named = None
        self.rows_left = MOST_ROWS
        self.alone_left = MOST_ALONE
        for number in range(topics):
            if not self._read_topic(answer, version, cursor, topics == 1, None if names is None else names[number]):
                return None
        return answer if read_tail(cursor, &self.rules.layout, version) else None

    @cython.nonecheck(True)
    cdef bint _read_topic(self, FetchAnswer answer, int version, Cursor* cursor, bint is_only, object name) except -1:
        cdef bint flexible = version >= self.rules.layout.flexible
        cdef object manager = answer.services.replica_manager
        cdef object known, led
        cdef Topic topic
        cdef FetchRow row
        cdef Py_ssize_t rows
        if not read_topic(cursor, flexible, version >= self.rules.layout.topic_ids, &topic):
            return False
        known = self.topic_name(&topic, manager)
        if known is not None:
            name = known
        elif not topic.is_id:
            return False        # no text
        if not is_only and not self._is_new(id_of(&topic) if name is None else name):
            return False
        rows = read_size(cursor, flexible)
        if not 0 < rows <= min(self.rows_left, cursor_left(cursor) // LEAST_ROW_BYTES):
            return False
        self.rows_left -= rows
        led = manager.topics.get(known)
        answer.begin_topic(&topic, rows)
        for _ in range(rows):
            if not read_row(cursor, &self.rules.layout, version, &row):
                return False
            if not self._read_partition(answer, &topic, name, led, &row):
                return False
        answer.end_topic()
        return not flexible or cursor_uvarint(cursor) == 0      # no tagged fields

    cdef bint _read_partition(self, FetchAnswer answer, const Topic* topic, object name, object led,
                              const FetchRow* row) except -1:
        cdef PartitionFields partition = led_partition(led, row.index, -1)
        cdef Found found
        if partition is None:
            if not self._is_new((id_of(topic) if name is None else name, row.index)):
                return False
        elif partition.named_in == fetches:
            return False        # the handler knows what is meant
        else:
            partition.named_in = fetches
            if (row.last_fetched_epoch < 0
                    and (row.leader_epoch == -1 or row.leader_epoch == partition.leader_epoch)
                    and answer.look(partition.log_, row.offset, row.max_bytes, &found)
                    and answer.put_found(row.index, row.offset, &found)):
                answer.may_wait_at(partition)
                return True
        self.alone_left -= 1
        if self.alone_left < 0:
            return False
        answer.put_data(answer.read_alone(FetchTarget(
            name, id_of(topic), row.index, row.offset, row.max_bytes, row.leader_epoch, row.last_fetched_epoch,
            row.log_start_offset,
        )))
        return True

    cdef bint _is_new(self, object named) except -1:
        """Whether this topic or partition was not named in the request before."""
        if self.named is None:
            self.named = {named}
            return True
        if named in self.named:
            return False
        self.named.add(named)
        return True

    # In a session

    cdef object _answer_session(self, object services, int version, int correlation_id, Cursor* cursor,
                                const FetchHead* head):
        cdef object session
        cdef list targets = []      # that the request names, as often as it does
        cdef Cursor topics = cursor[0]
        cdef TargetsRead read
        cdef object frame
        if head.session_epoch <= 0:
            return None
        session = services.fetch_sessions.get(head.session_id)
        if session is None or session.epoch != head.session_epoch:
            return None
        if session.uses_topic_ids != (version >= self.rules.layout.topic_ids):
            return None
        if not self._find_targets(services.replica_manager, version, cursor, session.targets, targets):
            return None
        self._update_targets(version, &topics, targets)
        session.advance(services.clock.now_ms())
        read = TargetsRead.__new__(TargetsRead)
        read.rules = self.rules
        read.services = services
        read.version = version
        read.correlation_id = correlation_id
        read.replica_id = -1
        read.head = head[0]
        read.targets = list((<dict?> session.targets).values())
        read.session = session
        read.incremental = True
        read.by_id = version >= self.rules.layout.topic_ids
        frame = read.attempt(False)
        return read.delayed() if frame is None else frame

    cdef bint _find_targets(self, object manager, int version, Cursor* cursor, dict known, list targets) except -1:
        """Reads the request to its last byte; False where it is not plain, or names what the session does not have."""
        cdef bint flexible = version >= self.rules.layout.flexible
        cdef Py_ssize_t topics = read_size(cursor, flexible)
        cdef Py_ssize_t rows
        cdef Topic topic
        cdef FetchRow row
        cdef object key, target
        if not 0 <= topics <= cursor_left(cursor):
            return False
        for _ in range(topics):
            if not read_topic(cursor, flexible, version >= self.rules.layout.topic_ids, &topic):
                return False
            key = id_of(&topic) if topic.is_id else self.topic_name(&topic, manager)
            rows = read_size(cursor, flexible)
            if not 0 <= rows <= cursor_left(cursor):
                return False
            for _ in range(rows):
                if not read_row(cursor, &self.rules.layout, version, &row):
                    return False
                target = known.get((key, row.index))
                if target is None:
                    return False
                targets.append(target)
            if flexible and cursor_uvarint(cursor):
                return False    # tagged fields
        return read_tail(cursor, &self.rules.layout, version)

    cdef int _update_targets(self, int version, Cursor* cursor, list targets) except -1:
        """Has the targets ask for what the request says, which was read before."""
        cdef bint flexible = version >= self.rules.layout.flexible
        cdef Topic topic
        cdef FetchRow row
        cdef FetchTarget target
        cdef Py_ssize_t number = 0
        for _ in range(read_size(cursor, flexible)):
            read_topic(cursor, flexible, version >= self.rules.layout.topic_ids, &topic)
            for _ in range(read_size(cursor, flexible)):
                read_row(cursor, &self.rules.layout, version, &row)
                target = targets[number]
                number += 1
                target.fetch_offset = row.offset
                target.max_bytes = row.max_bytes
                target.current_leader_epoch = row.leader_epoch
                target.last_fetched_epoch = row.last_fetched_epoch
                target.log_start_offset = row.log_start_offset
            if flexible:
                cursor_uvarint(cursor)
        return 0


cdef bytes id_of(const Topic* topic):
    return PyBytes_FromStringAndSize(<const char*> topic.data, topic.size) if topic.is_id else NO_ID


cdef class DelayedRows(DelayedFetch):
    """A fetch without a session while it waits, kept as the bytes that it came in."""

    cdef FastFetch path
    cdef int version
    cdef int correlation_id
    cdef list names             # of its topics
    cdef bytes request
    cdef uint64_t until_ns

    def attempt(self, force) -> bool:
        cdef Cursor cursor
        cdef FetchHead head
        cdef FetchAnswer answer
        cursor_init(&cursor, <const uint8_t*> PyBytes_AS_STRING(self.request), PyBytes_GET_SIZE(self.request))
        read_head(&cursor, &self.path.rules.layout, self.version, &head)
        answer = self.path.read_rows(self.ctx.services, self.version, self.correlation_id, &cursor, &head, self.names)
        if answer is None:
            self._hand_over(force)
        elif answer.has_enough(head.max_wait_ms, force):
            self._end(answer.end(), True)
        else:
            return False
        return True

    cdef int _hand_over(self, bint force) except -1:
        """Too much of it is for Python by now: the handler goes on, for as long as there is time."""
        cdef uint64_t now = now_ns()
        cdef object request
        self.release()
        request = self.ctx.decode(self.request)
        request.max_wait_ms = 0 if force or now >= self.until_ns else (self.until_ns - now) // 1000000 + 1
        for topic, name in zip(request.topics, self.names):
            topic.topic = name
        self.ctx.handle(request)
        return 0
