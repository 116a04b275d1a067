"""Fetch on the fast path: the request's rows are read from its bytes, and the answer is written as bytes, row by row.

A fetch without a session is answered row by row (by `DelayedRows` while there are too few bytes).  A fetch of a session
whose epoch is in order is answered by the session's targets (`targets_read`).  Each partition is read in C, or alone by
Python (`fetch_answer`).  A request that is not plain by its form (of a follower, with tagged fields or partitions to
forget, one that begins or ends a session, a partition named twice, bytes too many or too few) is left to the handler as
a whole, and nothing has been changed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.log.fetch_target cimport FetchTarget, is_plain_read
from kbroker._fast.log.log_fields cimport PartitionFields, led_partition
from kbroker._fast.net.direct cimport DirectAnswers, Topic
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.pending cimport DelayedFetch
from kbroker._fast.requests.fetch_answer cimport FetchAnswer, FetchRules
from kbroker._fast.requests.fetch_rows cimport (
    FINAL_EPOCH,
    NO_SESSION,
    FetchRow,
    FetchRows,
    Found,
    begin_fetch,
    begins_topic,
    next_row,
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
    cdef bint is_first          # it is read for the first time

    def __init__(self, FetchRules rules not None):
        self.rules = rules

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                       Gate gate):
        """The answer; a `Pending` while there is too little."""
        cdef FetchRows rows
        if not self.rules.layout.first <= version <= self.rules.layout.last:
            return None
        if version >= self.rules.layout.racks and services.replica_manager.selector is not None:
            return None     # where the client stands is written behind the topics
        if not begin_fetch(&rows, &self.rules.layout, version, data, size):
            return None
        if rows.head.session_id == NO_SESSION and rows.head.session_epoch == FINAL_EPOCH:
            return self._answer_rows(services, correlation_id, data, size, &rows, gate)
        return self._answer_session(services, correlation_id, &rows, gate)

    # Without a session

    cdef object _answer_rows(self, object services, int correlation_id, const uint8_t* data, Py_ssize_t size,
                             FetchRows* rows, Gate gate):
        cdef DelayedRows fetch
        cdef FetchAnswer answer = self.read_rows(services, correlation_id, rows, None, gate)
        if answer is None:
            return None
        if answer.has_enough(rows.head.max_wait_ms, False):
            return answer.end()
        fetch = DelayedRows.__new__(DelayedRows)
        fetch.purgatory = services.replica_manager.purgatory
        fetch.sources = answer.all_waiting()
        fetch.wait_ms = answer.wait_ms(rows.head.max_wait_ms)
        fetch.path = self
        fetch.version = rows.version
        fetch.correlation_id = correlation_id
        fetch.request = PyBytes_FromStringAndSize(<const char*> data, size)
        fetch.until_ns = now_ns() + <uint64_t> fetch.wait_ms * 1000000
        begin_fetch(rows, &self.rules.layout, rows.version, data, size)
        fetch.names = self._names(services.replica_manager, rows)
        return fetch

    cdef list _names(self, object manager, FetchRows* rows):
        """The names of the topics of a plain request: one that has gone by the end of the wait is answered by name."""
        cdef list names = []
        while next_row(rows) > 0:
            if begins_topic(rows):
                names.append(self.topic_name(&rows.topic, manager))
        return names

    cdef FetchAnswer read_rows(self, object services, int correlation_id, FetchRows* rows, list names, Gate gate):
        """The answer to the rows, but for its end; None for a request that is not plain, or asks for a topic that the
        client may not read.

        `names`: of the topics, where they are known already.
        """
        global fetches
        cdef FetchAnswer answer
        cdef object manager = services.replica_manager
        cdef object name = None
        cdef object led = None
        cdef Py_ssize_t topics = rows.topics
        cdef int more
        if topics == 0:
            return None
        answer = FetchAnswer.__new__(FetchAnswer)
        answer.rules = self.rules
        answer.services = services
        answer.version = rows.version
        answer.replica_id = -1
        answer.written_at_once = True
        answer.set_limits(&rows.head)
        answer.begin(correlation_id, NO_SESSION, topics)
        fetches += 1
        self.named = None
        self.is_first = names is None
        self.rows_left = MOST_ROWS
        self.alone_left = MOST_ALONE
        while True:
            more = next_row(rows)
            if more <= 0:
                return answer if more == 0 else None
            if begins_topic(rows):
                name = self.topic_name(&rows.topic, manager)
                led = manager.topics.get(name)
                if name is None:
                    if not rows.topic.is_id:
                        return None     # no text
                    if names is not None:
                        name = names[topics - rows.topics - 1]
                if gate is not None and not gate.may_read(name):
                    return None
                if not self._begin_topic(answer, rows, name, topics == 1):
                    return None
            if not self._read_partition(answer, &rows.topic, name, led, &rows.row):
                return None
            if rows.rows == 0:
                answer.end_topic()

    cdef bint _begin_topic(self, FetchAnswer answer, const FetchRows* rows, object name, bint is_only) except -1:
        if not is_only and not self._is_new(id_of(&rows.topic) if name is None else name):
            return False
        if rows.rows_of_topic > self.rows_left:
            return False
        self.rows_left -= rows.rows_of_topic
        answer.begin_topic(&rows.topic, rows.rows_of_topic)
        return True

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
            partition.log_.traffic.fetches += self.is_first
            if (is_plain_read(partition, row.leader_epoch, row.last_fetched_epoch)
                    and answer.look(partition.log_, row.offset, row.max_bytes, &found)
                    and answer.put_found(row.index, row.offset, &found)):
                answer.may_wait_at(partition)
                if found.size > 0:
                    answer.count_sent(partition.log_, found.size)
                return True
        self.alone_left -= 1
        if self.alone_left < 0:
            return False
        data = answer.read_alone(FetchTarget(
            name, id_of(topic), row.index, row.offset, row.max_bytes, row.leader_epoch, row.last_fetched_epoch,
            row.log_start_offset,
        ))
        answer.put_data(data)
        if answer.read is not None:
            if partition is None:
                answer.read.log_.traffic.fetches += self.is_first
            answer.count_sent(answer.read.log_, len(data.records))
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

    cdef object _answer_session(self, object services, int correlation_id, FetchRows* rows, Gate gate):
        cdef object session
        cdef list targets = []      # that the request names, as often as it does
        cdef FetchRows again = rows[0]
        cdef TargetsRead read
        cdef object frame
        if rows.head.session_epoch <= 0:
            return None
        session = services.fetch_sessions.get(rows.head.session_id)
        if session is None or session.epoch != rows.head.session_epoch:
            return None
        if session.uses_topic_ids != (rows.version >= self.rules.layout.topic_ids):
            return None
        if not self._find_targets(services.replica_manager, rows, session.targets, targets):
            return None
        if gate is not None and gate.judge is not None and not self._may_read_all(
            services.replica_manager.names, session.targets, gate
        ):
            return None
        self._update_targets(&again, targets)
        session.advance(services.clock.now_ms())
        read = TargetsRead.__new__(TargetsRead)
        read.rules = self.rules
        read.services = services
        read.version = rows.version
        read.correlation_id = correlation_id
        read.replica_id = -1
        read.head = rows.head
        read.targets = list((<dict?> session.targets).values())
        read.session = session
        read.incremental = True
        read.by_id = rows.version >= self.rules.layout.topic_ids
        read.pass_gate(gate)
        frame = read.attempt(False)
        return read.delayed() if frame is None else frame

    cdef bint _may_read_all(self, dict names, dict targets, Gate gate) except -1:
        """Whether the client may read all that its session has; what it was refused before is not."""
        cdef FetchTarget target
        for target in targets.values():
            if not gate.may_read(names.get(target.topic_id) if target.topic is None else target.topic):
                return False
            target.refusal = 0
        return True

    cdef bint _find_targets(self, object manager, FetchRows* rows, dict known, list targets) except -1:
        """Reads the request to its last byte; False where it is not plain, or names what the session does not have."""
        cdef object key = None
        cdef object target
        cdef int more
        while True:
            more = next_row(rows)
            if more <= 0:
                return more == 0
            if begins_topic(rows):
                key = id_of(&rows.topic) if rows.topic.is_id else self.topic_name(&rows.topic, manager)
            target = known.get((key, rows.row.index))
            if target is None:
                return False
            targets.append(target)

    cdef int _update_targets(self, FetchRows* rows, list targets) except -1:
        """Has the targets ask for what the request says, which was read before."""
        cdef FetchTarget target
        for target in targets:
            next_row(rows)
            target.fetch_offset = rows.row.offset
            target.max_bytes = rows.row.max_bytes
            target.current_leader_epoch = rows.row.leader_epoch
            target.last_fetched_epoch = rows.row.last_fetched_epoch
            target.log_start_offset = rows.row.log_start_offset
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
        cdef FetchRows rows
        cdef FetchAnswer answer
        begin_fetch(&rows, &self.path.rules.layout, self.version, <const uint8_t*> PyBytes_AS_STRING(self.request),
                    PyBytes_GET_SIZE(self.request))
        answer = self.path.read_rows(self.ctx.services, self.correlation_id, &rows, self.names, self.ctx.gate)
        if answer is None:
            self._hand_over(force)
        elif answer.has_enough(rows.head.max_wait_ms, force):
            self._end(answer.end(), True)
        else:
            if answer.late is not None:
                self.wait_at(answer.all_waiting())
            return False
        return True

    cdef int _hand_over(self, bint force) except -1:
        """Too many of the rows have to be read by Python by now: the handler takes over, for the rest of the wait."""
        cdef uint64_t now = now_ns()
        cdef object request
        self.release()
        request = self.ctx.decode(self.request)
        request.max_wait_ms = 0 if force or now >= self.until_ns else (self.until_ns - now) // 1000000 + 1
        for topic, name in zip(request.topics, self.names):
            topic.topic = name
        self.ctx.handle(request)
        return 0
