"""A producer of librdkafka and what becomes of its records: topics, rows that are held, ends that are counted.

Records are sent without copying their rows, so rows are held until each of their records has been acknowledged or has
failed.  An acknowledgement is counted in the cell of its second, topic and partition; a failure is kept with its row
for the caller.  Latency runs from the time at which a row was due to the moment at which its acknowledgement is taken
from librdkafka.

One thread at a time uses a client.
"""

from cython cimport no_gc_clear
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.string cimport memcpy

from kbroker._fast.base.column_buffer cimport Room, room_free, room_reserve
from kbroker._fast.replay.delivery_cells cimport ACKNOWLEDGED, Cell, cells_at, cells_free, cells_take, histogram_add
from kbroker._fast.replay.librdkafka cimport (
    ERROR_FATAL,
    EVENT_DELIVERIES,
    EVENT_ERROR,
    Event,
    Library,
    Message,
    Metadata,
    PRODUCER_TYPE,
    PURGE_IN_FLIGHT,
    PURGE_QUEUE,
    SETTING_OK,
    Settings,
    Topic,
)
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.replay.replay_rows cimport Chunk, ReplayRows

cdef enum:
    MESSAGE_BYTES = 512
    ROW_BITS = 32


class ClientError(Exception):
    """librdkafka does not take its settings, or a topic."""


cdef struct Failure:
    int32_t second
    int32_t slot
    int32_t row
    int32_t code


@no_gc_clear
cdef class DeliveryClient:
    """See the module's text.  `settings` are librdkafka's; rows name `topics` by number."""

    def __cinit__(self, Library library not None, settings, topics):
        self.library = library
        self.api = library.functions
        self.held = []
        self.released = set()
        self.start_ns = -1
        self._open(settings)
        for name in topics:
            self._add_topic(name.encode())

    def __dealloc__(self):
        self.close()
        cells_free(&self.cells)
        room_free(&self.failures)
        room_free(&self.events)
        room_free(&self.topics)
        room_free(&self.chunks)

    cdef int _open(self, settings) except -1:
        cdef char[MESSAGE_BYTES] message
        cdef Settings* conf = self.api.conf_new()
        cdef bytes key, value
        message[0] = 0
        for name, given in settings.items():
            key, value = name.encode(), given.encode()
            if self.api.conf_set(conf, key, value, message, MESSAGE_BYTES) != SETTING_OK:
                self.api.conf_destroy(conf)
                raise ClientError(message.decode(errors="replace"))
        self.api.conf_set_events(conf, EVENT_DELIVERIES | EVENT_ERROR)
        self.client = self.api.new_client(PRODUCER_TYPE, conf, message, MESSAGE_BYTES)
        if self.client == NULL:
            self.api.conf_destroy(conf)
            raise ClientError(message.decode(errors="replace"))
        self.queue = self.api.queue_get_main(self.client)
        return 0

    cdef int _add_topic(self, bytes name) except -1:
        cdef Topic* topic
        if not room_reserve(&self.topics, sizeof(Topic*)):
            raise MemoryError
        topic = self.api.topic_new(self.client, name, NULL)
        if topic == NULL:
            raise ClientError(f"the client does not take topic {name.decode()}")
        memcpy(self.topics.data + self.topics.size, &topic, sizeof(Topic*))
        self.topics.size += sizeof(Topic*)
        return 0

    def know_topic(self, Py_ssize_t topic, int timeout_ms):
        """Asks the cluster for a topic, so that its leaders are known.  librdkafka's code for an error, or 0."""
        cdef const Metadata* found = NULL
        cdef int code
        if not 0 <= topic < self.topics.size // <Py_ssize_t>sizeof(Topic*) or self.client == NULL:
            raise IndexError(topic)
        with nogil:
            code = self.api.metadata(self.client, 0, (<Topic**>self.topics.data)[topic], &found, timeout_ms)
            if found != NULL:
                self.api.metadata_destroy(found)
        return code

    def begin(self, int64_t start_ns):
        self.start_ns = start_ns

    def hold(self, ReplayRows rows not None):
        """The slot of rows that are to be played."""
        cdef Chunk* chunk = &rows.chunk
        rows.check_topics(self.topics.size // <Py_ssize_t>sizeof(Topic*))
        if None in self.held:
            slot = self.held.index(None)
        else:
            if not room_reserve(&self.chunks, sizeof(Chunk*)):
                raise MemoryError
            slot = len(self.held)
            self.held.append(None)
            self.chunks.size += sizeof(Chunk*)
        self.held[slot] = rows
        (<Chunk**>self.chunks.data)[<Py_ssize_t>slot] = chunk
        return slot

    def release(self, Py_ssize_t slot):
        """No more of a slot's rows are played; they are freed once each of their records is acknowledged or has
        failed."""
        self._rows(slot)
        self.released.add(slot)
        self._let_go()

    def serve(self, int64_t patience_ns):
        """Takes acknowledgements until none is missing or the time is over; returns how many records are still under
        way."""
        cdef int64_t until = <int64_t>now_ns() + patience_ns
        cdef int left = 0
        if self.client == NULL:
            return 0
        with nogil:
            while True:
                self._serve(0)
                left = self.api.outq_len(self.client)
                if left == 0 or <int64_t>now_ns() >= until:
                    break
                self._serve(<int>max((until - <int64_t>now_ns()) // MILLISECOND, 1))
        self._let_go()
        if self.no_memory:
            raise MemoryError
        return left

    def purge(self):
        """Gives up what is queued and in flight; `serve` takes their ends."""
        with nogil:
            self.api.purge(self.client, PURGE_QUEUE | PURGE_IN_FLIGHT)

    def take_failures(self):
        """(second, rows, row, librdkafka's code) of each record that failed."""
        cdef Failure* failure = <Failure*>self.failures.data
        cdef Py_ssize_t at
        cdef list taken = []
        for at in range(self.failures.size // <Py_ssize_t>sizeof(Failure)):
            taken.append((failure[at].second, self.held[failure[at].slot], failure[at].row, failure[at].code))
        for at in range(self.failures.size // <Py_ssize_t>sizeof(Failure)):
            (<Chunk**>self.chunks.data)[failure[at].slot].outstanding -= 1
        self.failures.size = 0
        self._let_go()
        return taken

    def take_events(self):
        """(second, error code) of each of librdkafka's errors about connections, which make no record fail by
        themselves."""
        cdef Failure* event = <Failure*>self.events.data
        cdef Py_ssize_t at
        taken = [(event[at].second, event[at].code) for at in range(self.events.size // <Py_ssize_t>sizeof(Failure))]
        self.events.size = 0
        return taken

    def take_cells(self):
        return cells_take(&self.cells)

    def close(self):
        """Ends librdkafka's threads.  Records without an end are lost."""
        cdef Py_ssize_t at
        if self.client == NULL:
            return
        with nogil:
            self.api.queue_destroy(self.queue)
            for at in range(self.topics.size // <Py_ssize_t>sizeof(Topic*)):
                self.api.topic_destroy((<Topic**>self.topics.data)[at])
            self.api.destroy(self.client)
        self.client = NULL

    cdef ReplayRows _rows(self, Py_ssize_t slot):
        if not 0 <= slot < len(self.held) or self.held[slot] is None or slot in self.released:
            raise IndexError(f"no rows are held at {slot}")
        return <ReplayRows>self.held[slot]

    cdef int _let_go(self) except -1:
        for slot in tuple(self.released):
            if (<ReplayRows>self.held[slot]).chunk.outstanding == 0:
                (<Chunk**>self.chunks.data)[<Py_ssize_t>slot] = NULL
                self.held[slot] = None
                self.released.discard(slot)
        return 0

    cdef int32_t _second(self, int64_t now) noexcept nogil:
        return <int32_t>((now - self.start_ns) // SECOND) if now > self.start_ns and self.start_ns >= 0 else 0

    cdef void _serve(self, int timeout_ms) noexcept nogil:
        """Takes what there is; waits up to `timeout_ms` for a first event."""
        cdef Event* event = self.api.queue_poll(self.queue, timeout_ms)
        cdef int kind
        while event != NULL:
            kind = self.api.event_type(event)
            if kind == EVENT_DELIVERIES:
                self._take_deliveries(event)
            elif kind == EVENT_ERROR:
                self._take_error(event)
            self.api.event_destroy(event)
            event = self.api.queue_poll(self.queue, 0)

    cdef void _take_deliveries(self, Event* event) noexcept nogil:
        cdef const Message* message = self.api.event_message_next(event)
        cdef int64_t now = now_ns()
        cdef int32_t second = self._second(now)
        cdef Py_ssize_t slot, row
        cdef Chunk* chunk
        while message != NULL:
            slot = <Py_ssize_t>(<uintptr_t>message.opaque >> ROW_BITS)
            row = <Py_ssize_t><uint32_t><uintptr_t>message.opaque
            if message.code:
                self.no_memory |= not self._fail(now, slot, row, message.code)
            else:
                chunk = (<Chunk**>self.chunks.data)[slot]
                chunk.outstanding -= 1
                self.no_memory |= not self._count_end(chunk, row, message.partition, now, second)
            message = self.api.event_message_next(event)

    cdef bint _count_end(
        self, const Chunk* chunk, Py_ssize_t row, int32_t partition, int64_t now, int32_t second
    ) noexcept nogil:
        cdef int64_t due_us = chunk.due_us[row]
        cdef int64_t latency_us = (now - self.start_ns) // MICROSECOND - due_us
        cdef int32_t topic = chunk.topics[row]
        cdef Cell* cell = cells_at(
            &self.cells, <int32_t>(due_us // 1_000_000), topic, partition, &self.latency_hint
        )
        if cell == NULL or not histogram_add(&cell.latency, latency_us):
            return False
        cell = cells_at(&self.cells, second, topic, partition, &self.done_hint)
        if cell == NULL:
            return False
        cell.counts[ACKNOWLEDGED] += 1
        self.acknowledged += 1
        return True

    cdef bint _fail(self, int64_t now, Py_ssize_t slot, Py_ssize_t row, int code) noexcept nogil:
        """Keeps a record's end; its rows stay held until it is taken."""
        return self._note(&self.failures, self._second(now), slot, row, code)

    cdef bint _note(
        self, Room* room, int32_t second, Py_ssize_t slot, Py_ssize_t row, int code
    ) noexcept nogil:
        cdef Failure* failure
        if not room_reserve(room, sizeof(Failure)):
            return False
        failure = <Failure*>(room.data + room.size)
        failure.second = second
        failure.slot = <int32_t>slot
        failure.row = <int32_t>row
        failure.code = code
        room.size += sizeof(Failure)
        return True

    cdef void _take_error(self, Event* event) noexcept nogil:
        cdef char[MESSAGE_BYTES] message
        cdef int code = self.api.event_error(event)
        cdef int fatal
        if code == ERROR_FATAL:
            # What is wrong is said by another function.
            fatal = self.api.fatal_error(self.client, message, MESSAGE_BYTES)
            code = fatal if fatal else code
        self.no_memory |= not self._note(&self.events, self._second(now_ns()), -1, -1, code)
