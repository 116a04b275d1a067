"""A fetch of targets: of a session's (KIP-227), or of what a decoded request names.

An incremental answer names only the partitions whose data or bounds have changed since the client's last answer.  A
target at the end of its log, without a change, costs a look at a few C fields.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t

from kbroker._fast.log.fetch_target cimport FetchTarget, partition_to_read
from kbroker._fast.log.log_fields cimport LogFields, PartitionFields, led_partition
from kbroker._fast.log.replica_fields cimport FollowerFields
from kbroker._fast.net.direct cimport Topic
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.pending cimport DelayedFetch, Pending
from kbroker._fast.requests.fetch_answer cimport FetchAnswer, FetchRules
from kbroker._fast.requests.fetch_rows cimport NO_SESSION, FetchHead, Found

cdef enum:
    TOPIC_AUTHORIZATION_FAILED = 29

cdef extern from *:
    const char* text_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t* size) except NULL


cdef class LookedAt:
    """A partition that the answer names.  `data`: what Python gave of it, else None."""


cdef class TargetsRead:
    """`targets` are read in their order.  `reader`: see `FetchRules`; where there is one, Python reads each partition.
     `session` remembers what its client was answered, None: there is none.  `gate`: what the request has passed.

    `start` gives the answer; or `begin`, `look` until it says True, `is_enough`, and then `write` until it gives the
    frame, for what takes long.
    """

    def __init__(self, FetchRules rules not None, services, int version, int correlation_id, int32_t replica_id,
                 bint committed, int32_t max_wait_ms, int32_t min_bytes, int32_t max_bytes, list targets not None,
                 session, bint incremental, reader=None, Gate gate=None):
        self.rules = rules
        self.services = services
        self.version = version
        self.correlation_id = correlation_id
        self.replica_id = replica_id
        self.reader = reader
        self.head = FetchHead(max_wait_ms, min_bytes, max_bytes, committed, 0, 0)
        self.targets = targets
        self.session = session
        self.incremental = incremental
        self.by_id = version >= rules.layout.topic_ids
        self.pass_gate(gate)

    cdef int pass_gate(self, Gate gate) except -1:
        """Takes what the request has passed; the targets have been judged by it."""
        self.gate = gate
        if gate is not None and gate.judge is not None:
            self.judged_in = gate.judge.generation
        return 0

    cdef int _judge(self) except -1:
        """What the client may read has changed while its fetch waited."""
        cdef FetchTarget target
        cdef bint allowed = self.replica_id >= 0 and self.gate.may_replicate()
        self.judged_in = self.gate.judge.generation
        for target in self.targets:
            if self.replica_id < 0:
                name = self.names.get(target.topic_id, target.topic) if self.by_id else target.topic
                allowed = self.gate.may_read(name)
            target.refusal = 0 if allowed else TOPIC_AUTHORIZATION_FAILED
        return 0

    def start(self):
        """What answers the request: at once, or when there is enough."""
        cdef object frame = self.attempt(False)
        cdef Pending answer
        if frame is None:
            return self.delayed()
        answer = Pending.__new__(Pending)
        answer.answer_frame(frame)
        return answer

    def delayed(self):
        """What answers the fetch, for which there is too little, later."""
        cdef DelayedTargets fetch = DelayedTargets.__new__(DelayedTargets)
        fetch.purgatory = self.services.replica_manager.purgatory
        fetch.sources = self.answer.all_waiting()
        fetch.wait_ms = self.answer.wait_ms(self.head.max_wait_ms)
        fetch.on_beat = self.replica_id >= 0
        fetch.read = self
        self.answer = self.topics = None
        self.is_again = True
        return fetch

    @property
    def late(self) -> list:
        """The late reads of the last attempt."""
        return self.answer.late or []

    cdef object attempt(self, bint force):
        """The frame; None where there is not enough yet, unless `force`."""
        self.begin()
        self.look(len(self.targets))
        if not self.is_enough(force):
            return None
        return self.write(len(self.targets) + 1)

    cdef object attempt_unmarked(self):
        """The frame, where no target was marked since the last attempt: if there was nothing to say then, nothing is
        looked at again.  What comes without a mark, such as a log's new start, is for the next fetch."""
        cdef bint has_news = self.has_news
        if self.gate is not None and self.gate.judge is not None and self.judged_in != self.gate.judge.generation:
            has_news = True
        self.begin()
        if has_news or not self.incremental:
            self.look(len(self.targets))
        return self.write(len(self.targets) + 1)

    def begin(self) -> None:
        """Forget what was found before."""
        self.answer = FetchAnswer.__new__(FetchAnswer)
        self.answer.rules = self.rules
        self.answer.services = self.services
        self.answer.version = self.version
        self.answer.replica_id = self.replica_id
        self.answer.reader = self.reader
        self.answer.set_limits(&self.head)
        self.topics = {}
        self.with_records = []
        self.looked = 0
        self.order = None
        self.has_news = False
        manager = self.services.replica_manager
        self.led = manager.topics
        self.names = manager.names
        changes = manager.isr_changes if self.replica_id >= 0 and self.incremental else None
        self.replica = None if changes is None else self.replica_id
        self.now = 0.0 if changes is None else changes.now()
        if self.gate is not None and self.gate.judge is not None and self.judged_in != self.gate.judge.generation:
            self._judge()

    def look(self, Py_ssize_t count) -> bool:
        """Looks at so many targets more; whether that was the last one."""
        cdef Py_ssize_t end = min(self.looked + count, len(self.targets))
        while self.looked < end:
            self._look_at(<FetchTarget> self.targets[self.looked])
            self.looked += 1
        return self.looked == len(self.targets)

    def is_enough(self, force) -> bool:
        """Whether the fetch is answered with what was found."""
        return self.answer.has_enough(self.head.max_wait_ms, force)

    cdef int _look_at(self, FetchTarget target) except -1:
        cdef FetchAnswer answer = self.answer
        cdef PartitionFields partition = None
        cdef Found found
        cdef object data
        cdef bint urgent
        if self.replica_id < 0 and self.reader is None:
            partition = partition_to_read(target, self.led, self.names, self.by_id)
        elif self.replica is not None:
            partition = self._quiet(target)
            if partition is not None:
                partition.log_.traffic.fetches += not self.is_again
                return answer.may_wait_at(partition)
        if partition is not None:
            partition.log_.traffic.fetches += not self.is_again
            if (self.incremental and target.fetch_offset == partition.log_.high_watermark and self.head.max_bytes >= 0
                    and not target.is_changed(0, partition.log_.high_watermark, partition.log_.log_start_offset)):
                return answer.may_wait_at(partition)
            if answer.look(partition.log_, target.fetch_offset, target.max_bytes, &found):
                answer.may_wait_at(partition)
                if not self.incremental or target.is_changed(found.size, found.high_watermark, found.log_start_offset):
                    self._add(target, &found, None, partition)
                return 0
        self.has_news = True
        urgent, answer.urgent = answer.urgent, False
        data = answer.read_alone(target)
        if answer.read is not None and partition is None:
            answer.read.log_.traffic.fetches += not self.is_again
        if (not self.incremental or answer.urgent or data.error_code != 0
                or target.is_changed(len(data.records), data.high_watermark, data.log_start_offset)):
            found.size = len(data.records)
            self._add(target, &found, data, answer.read)
        answer.urgent = answer.urgent or urgent
        return 0

    @cython.nonecheck(True)
    cdef PartitionFields _quiet(self, FetchTarget target):
        """The partition, where an in-sync follower fetches from the same log end as before; its fetch is noted here.
        Else None."""
        cdef object name = target.topic
        cdef PartitionFields partition
        cdef FollowerFields follower
        cdef LogFields log
        if target.refusal != 0 or target.max_bytes < 0 or self.head.max_bytes < 0:
            return None
        if self.by_id:
            name = self.names.get(target.topic_id)
            if name is None:
                return None
            target.topic = name
        partition = led_partition(self.led.get(name), target.index, target.current_leader_epoch)
        if partition is None:
            return None
        log = partition.log_
        if (target.fetch_offset != log.high_watermark or target.fetch_offset != log.local_.log_end_offset
                or (target.last_fetched_epoch >= 0
                    and target.last_fetched_epoch != log.leader_epoch_cache_.latest_epoch)
                or target.is_changed(0, log.high_watermark, log.log_start_offset)):
            return None
        follower = partition.followers.get(self.replica)
        if follower is None or self.replica not in partition.isr:
            return None
        return partition if follower.asks_again(target.fetch_offset, target.log_start_offset, self.now) else None

    cdef int _add(self, FetchTarget target, const Found* found, object data, PartitionFields partition) except -1:
        cdef LookedAt row = LookedAt.__new__(LookedAt)
        cdef object key = target.topic_id if self.by_id else target.topic
        self.has_news = True
        row.target = target
        row.found = found[0]
        row.data = data
        if partition is not None and self.replica_id < 0:
            row.log = partition.log_
        if data is None and found.size > 0:
            row.segment = self.answer.segment
            row.file = self.answer.file
        if found.size > 0 and self.incremental:
            self.with_records.append(target)
        if key in self.topics:
            self.topics[key].append(row)
        else:
            self.topics[key] = [row]
        return 0

    def write(self, Py_ssize_t count):
        """Writes so many partitions more: the frame, when that was the last one, else None.

        What the answer says is remembered, and its partitions are read last of all by the session's next fetch.
        """
        cdef FetchAnswer answer = self.answer
        cdef list rows
        cdef Py_ssize_t last, written
        cdef Topic topic
        if self.order is None:
            self._begin_writing()
        while self.order:
            last = len(self.order) - 1
            key, rows, written = self.order[last]
            while written < len(rows):
                if count == 0:
                    self.order[last] = (key, rows, written)
                    answer.flush()
                    return None
                if written == 0:
                    name_topic(key, &topic)
                    answer.begin_topic(&topic, len(rows))
                self._write(<LookedAt> rows[written])
                # A wide fetch's rows are freed in pieces, too.
                rows[written] = None
                written += 1
                count -= 1
            answer.end_topic()
            self.order.pop()
        if self.incremental and self.with_records:
            self.services.fetch_sessions.rotate(self.session, self.with_records)
        self.answer = self.topics = None
        return answer.end()

    cdef int _begin_writing(self) except -1:
        cdef int32_t session_id = NO_SESSION
        if self.session is not None:
            session_id = self.session.session_id
        self.answer.begin(self.correlation_id, session_id, len(self.topics))
        self.order = [(key, rows, 0) for key, rows in self.topics.items()]
        self.order.reverse()
        return 0

    cdef int _write(self, LookedAt row) except -1:
        cdef FetchAnswer answer = self.answer
        cdef FetchTarget target = row.target
        if row.data is None:
            answer.segment = row.segment
            answer.file = row.file
            if answer.put_found(target.index, target.fetch_offset, &row.found):
                row.log.traffic.bytes_out += row.found.size
                if self.session is not None:
                    target.note_answer(row.found.high_watermark, row.found.log_start_offset)
                return 0
            row.data = answer.read_alone(target)
            row.log = None if answer.read is None else answer.read.log_
        if row.log is not None:
            row.log.traffic.bytes_out += len(row.data.records)
        if self.replica_id >= 0 and len(row.data.records) > 0:
            self.services.replica_manager.sent_to_follower(self.replica_id, target.topic, target.index,
                                                           len(row.data.records))
        if self.session is not None:
            target.must_respond(row.data.error_code, len(row.data.records), row.data.high_watermark,
                                row.data.log_start_offset)
        return answer.put_data(row.data)


cdef int name_topic(object key, Topic* topic) except -1:
    topic.is_id = isinstance(key, bytes)
    if topic.is_id:
        topic.data = <const uint8_t*> PyBytes_AS_STRING(key)
        topic.size = PyBytes_GET_SIZE(key)
    else:
        topic.data = <const uint8_t*> text_of(key, &topic.size)
    return 0


cdef class DelayedTargets(DelayedFetch):
    """Such a fetch while it waits."""

    def attempt(self, force) -> bool:
        cdef object frame = self.read.attempt(force)
        if frame is None:
            if self.read.answer.late is not None:
                self.wait_at(self.read.answer.all_waiting())
            return False
        self._end(frame, True)
        return True

    def attempt_unmarked(self) -> bool:
        self._end(self.read.attempt_unmarked(), True)
        return True
