"""A producer that sends rows at their times and counts their ends, all without the GIL: librdkafka, called from C.

    producer = ReplayProducer(library, settings, topics)
    producer.describe(mark_name, late_us)
    producer.begin(start_ns)                        # of the monotonic clock: what `due_us` counts from
    slot = producer.hold(ReplayRows(…))
    why, row = producer.play(slot, row, slice_ns)   # ALL_DONE; SLICE_OVER: call again; NOT_PRODUCED: this row is due
    producer.release(slot)                          # no more is played of these rows
    producer.serve(patience_ns)                     # how many records have no end yet
    producer.take_cells(), .take_failures(), .take_events()

While librdkafka's queue is full, `play` serves acknowledgements, tries again, and counts the wait (`queue_full_us`).
"""

from cython cimport no_gc_clear
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kbroker._fast.replay.delivery_cells cimport (
    BYTES,
    Cell,
    LATE,
    OFFERED,
    QUEUE_FULL_US,
    SENT,
    cells_at,
    histogram_add,
)
from kbroker._fast.replay.delivery_client cimport DeliveryClient, MICROSECOND, MILLISECOND, SECOND
from kbroker._fast.replay.librdkafka cimport (
    ARGUMENT_HEADERS,
    ARGUMENT_KEY,
    ARGUMENT_OPAQUE,
    ARGUMENT_PARTITION,
    ARGUMENT_TOPIC,
    ARGUMENT_VALUE,
    Argument,
    ERROR_QUEUE_FULL,
    Error,
    Headers,
    Topic,
)
from kbroker._fast.base.monotonic cimport CLOCK_MONOTONIC, now_ns, timespec
from kbroker._fast.records.record_packer cimport NULL_BYTES, is_valid, locate
from kbroker._fast.replay.replay_rows cimport ReplayRows

cdef extern from "<time.h>" nogil:
    int TIMER_ABSTIME
    int clock_nanosleep(int clock, int flags, const timespec* until, timespec* left)

cdef enum:
    PLAYED = 0
    OVER = 1
    OTHER = 2
    BAD_COLUMN = -1
    NO_MEMORY = -2
    NO_HEADER_KEY = -3
    SERVE_EVERY = 32
    FULL_WAIT_MS = 5
    # Below this a wait is slept to the microsecond; above, acknowledgements are served while they come.
    SLEPT_NS = 1_500_000

ALL_DONE = PLAYED
SLICE_OVER = OVER
NOT_PRODUCED = OTHER

# What an empty value points to: without an address it would be null.
cdef uint8_t NOTHING = 0


@no_gc_clear
cdef class ReplayProducer(DeliveryClient):
    """See the module's text.  Sums since the start: `sent`, `acknowledged`, `sent_bytes`, `late`, `queue_full_us`."""

    cdef bytes mark_name
    cdef Py_ssize_t offered_hint, sent_hint
    cdef int64_t late_us
    cdef readonly int64_t sent, sent_bytes, late, queue_full_us

    def describe(self, bytes mark_name not None, int64_t late_us):
        """The name of the header that holds a row's mark, and from when on a record counts as late."""
        self.mark_name = mark_name
        self.late_us = late_us

    def play(self, Py_ssize_t slot, Py_ssize_t row, int64_t slice_ns):
        """Sends the rows from `row` on for about `slice_ns`: (why it ended, the row to go on with)."""
        cdef ReplayRows rows = self._rows(slot)
        cdef const char* name = self.mark_name
        cdef int64_t until = <int64_t>now_ns() + slice_ns
        cdef int outcome
        if row < 0 or self.start_ns < 0 or self.client == NULL or self.mark_name is None:
            raise ValueError("a producer is described and begins before it plays, from row 0 on, and not after its end")
        with nogil:
            outcome = self._play(rows, slot, &row, name, until)
        self._let_go()
        if outcome == NO_MEMORY or self.no_memory:
            raise MemoryError
        if outcome == BAD_COLUMN:
            raise ValueError(f"row {row} lies outside of its column")
        if outcome == NO_HEADER_KEY:
            raise ValueError(f"row {row} has a header without a key")
        return outcome, row

    cdef int _play(
        self, ReplayRows rows, Py_ssize_t slot, Py_ssize_t* row, const char* mark_name, int64_t until
    ) noexcept nogil:
        cdef int64_t now = now_ns()
        cdef int64_t due
        cdef Headers* headers
        cdef int outcome = PLAYED
        while row[0] < rows.rows:
            due = self.start_ns + rows.chunk.due_us[row[0]] * MICROSECOND
            if now < due:
                if not self._wait(due, until):
                    return OVER
            elif now >= until:
                return OVER
            if rows.produced != NULL and rows.produced[row[0]] == 0:
                return OTHER
            if row[0] % SERVE_EVERY == 0:
                self._serve(0)
            headers = NULL
            outcome = self._headers(rows, row[0], mark_name, &headers)
            if outcome == PLAYED:
                outcome = self._send(rows, slot, row[0], due, headers, until)
            if outcome != PLAYED:
                if headers != NULL:
                    self.api.headers_destroy(headers)
                return outcome
            row[0] += 1
            now = now_ns()
        return PLAYED

    cdef bint _wait(self, int64_t due, int64_t until) noexcept nogil:
        """Serves acknowledgements until `due`; False when `until` comes first."""
        cdef int64_t left
        cdef int64_t now
        cdef timespec then
        while True:
            now = now_ns()
            if now >= due:
                return True
            if now >= until:
                return False
            left = min(due, until) - now
            if left >= SLEPT_NS:
                self._serve(<int>((left - MILLISECOND // 2) // MILLISECOND))
                continue
            self._serve(0)
            then.tv_sec = <long>((now + left) // SECOND)
            then.tv_nsec = <long>((now + left) % SECOND)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL)

    cdef int _headers(
        self, ReplayRows rows, Py_ssize_t row, const char* mark_name, Headers** made
    ) noexcept nogil:
        """The row's own headers and its mark; NULL for neither."""
        cdef const uint8_t* start = NULL
        cdef const uint8_t* name = NULL
        cdef Py_ssize_t first = 0
        cdef Py_ssize_t last = 0
        cdef Py_ssize_t at, size, name_bytes
        cdef Py_ssize_t mark_bytes = locate(&rows.marks, row, &start)
        if rows.header_offsets != NULL and is_valid(rows.header_valid, rows.header_shift + row):
            first = rows.header_offsets[rows.header_shift + row]
            last = rows.header_offsets[rows.header_shift + row + 1]
        if mark_bytes < NULL_BYTES or first < 0 or last < first or last > rows.header_rows:
            return BAD_COLUMN
        if first == last and mark_bytes == NULL_BYTES:
            return PLAYED
        made[0] = self.api.headers_new(<size_t>(last - first + 1))
        if made[0] == NULL:
            return NO_MEMORY
        if first < last:
            for at in range(first, last):
                name_bytes = locate(&rows.header_keys, at, &name)
                if name_bytes < 0:
                    return NO_HEADER_KEY if name_bytes == NULL_BYTES else BAD_COLUMN
                size = locate(&rows.header_values, at, &start)
                if size < NULL_BYTES:
                    return BAD_COLUMN
                self._add_header(made[0], <const char*>name, name_bytes, start, size)
            mark_bytes = locate(&rows.marks, row, &start)
        if mark_bytes >= 0:
            # Without a size it is librdkafka that counts the name's bytes.
            self.api.header_add(made[0], mark_name, -1, start if mark_bytes else &NOTHING, mark_bytes)
        return PLAYED

    cdef inline void _add_header(
        self, Headers* headers, const char* name, Py_ssize_t name_bytes, const uint8_t* start, Py_ssize_t size
    ) noexcept nogil:
        if size == NULL_BYTES:
            self.api.header_add(headers, name if name_bytes else <const char*>&NOTHING, name_bytes, NULL, 0)
        else:
            self.api.header_add(
                headers, name if name_bytes else <const char*>&NOTHING, name_bytes, start if size else &NOTHING, size
            )

    cdef int _send(
        self, ReplayRows rows, Py_ssize_t slot, Py_ssize_t row, int64_t due, Headers* headers, int64_t until
    ) noexcept nogil:
        """Hands a record over.  librdkafka owns the headers when it took the record; they are freed here when it
        refused for good."""
        cdef Argument[6] arguments
        cdef const uint8_t* value = NULL
        cdef const uint8_t* key = NULL
        cdef Py_ssize_t value_bytes = locate(&rows.values, row, &value)
        cdef Py_ssize_t key_bytes = locate(&rows.keys, row, &key)
        cdef int64_t now
        cdef int code
        if value_bytes < NULL_BYTES or key_bytes < NULL_BYTES:
            return BAD_COLUMN
        arguments[0].kind = ARGUMENT_TOPIC
        arguments[0].value.pointer = (<Topic**>self.topics.data)[rows.chunk.topics[row]]
        arguments[1].kind = ARGUMENT_PARTITION
        arguments[1].value.number = -1 if rows.partitions == NULL else rows.partitions[row]
        arguments[2].kind = ARGUMENT_VALUE
        arguments[2].value.memory.start = value if value_bytes else &NOTHING
        arguments[2].value.memory.size = <size_t>max(value_bytes, 0)
        arguments[3].kind = ARGUMENT_KEY
        arguments[3].value.memory.start = key if key_bytes else &NOTHING
        arguments[3].value.memory.size = <size_t>max(key_bytes, 0)
        arguments[4].kind = ARGUMENT_OPAQUE
        arguments[4].value.pointer = <void*>((<uintptr_t>slot << 32) | <uintptr_t>row)
        arguments[5].kind = ARGUMENT_HEADERS
        arguments[5].value.pointer = headers
        while True:
            now = now_ns()
            code = self._hand_over(arguments, 5 if headers == NULL else 6)
            if code != ERROR_QUEUE_FULL:
                break
            self._serve(FULL_WAIT_MS)
            if not self._count_wait(rows, row, (<int64_t>now_ns() - now) // MICROSECOND):
                return NO_MEMORY
            if <int64_t>now_ns() >= until:
                return OVER
        rows.chunk.outstanding += 1
        if code and headers != NULL:
            self.api.headers_destroy(headers)
        if code:
            return PLAYED if self._fail(now, slot, row, code) and self._count_offer(rows, row) else NO_MEMORY
        return PLAYED if self._count_sent(rows, row, due, now, max(value_bytes, 0) + max(key_bytes, 0)) else NO_MEMORY

    cdef inline int _hand_over(self, const Argument* arguments, size_t count) noexcept nogil:
        cdef Error* error = self.api.produceva(self.client, arguments, count)
        cdef int code
        if error == NULL:
            return 0
        code = self.api.error_code(error)
        self.api.error_destroy(error)
        return code

    cdef bint _count_wait(self, ReplayRows rows, Py_ssize_t row, int64_t waited_us) noexcept nogil:
        cdef Cell* cell = self._offered_cell(rows, row)
        self.queue_full_us += waited_us
        if cell == NULL:
            return False
        cell.counts[QUEUE_FULL_US] += waited_us
        return True

    cdef inline Cell* _offered_cell(self, ReplayRows rows, Py_ssize_t row) noexcept nogil:
        cdef int32_t second = <int32_t>(rows.chunk.due_us[row] // 1_000_000)
        return cells_at(&self.cells, second, rows.chunk.topics[row], -1, &self.offered_hint)

    cdef bint _count_offer(self, ReplayRows rows, Py_ssize_t row) noexcept nogil:
        cdef Cell* cell = self._offered_cell(rows, row)
        if cell == NULL:
            return False
        cell.counts[OFFERED] += 1
        return True

    cdef bint _count_sent(
        self, ReplayRows rows, Py_ssize_t row, int64_t due, int64_t now, Py_ssize_t size
    ) noexcept nogil:
        cdef Cell* cell = self._offered_cell(rows, row)
        cdef int64_t error_us = (now - due) // MICROSECOND
        if cell == NULL or not histogram_add(&cell.sent_error, error_us):
            return False
        cell.counts[OFFERED] += 1
        if error_us > self.late_us:
            cell.counts[LATE] += 1
            self.late += 1
        cell = cells_at(&self.cells, self._second(now), rows.chunk.topics[row], -1, &self.sent_hint)
        if cell == NULL:
            return False
        cell.counts[SENT] += 1
        cell.counts[BYTES] += size
        self.sent += 1
        self.sent_bytes += size
        return True
