"""One request under way: as its handler sees it, and as its gate counts it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kbroker._fast.base.big_endian cimport kb_store32
from kbroker._fast.base.counters cimport RequestStats, RequestTimes
from kbroker._fast.base.cursor cimport kb_load32
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.net.route cimport Route

cdef enum:
    # An answer with more items is encoded in pieces; one without its records has few.
    ITEMS = 2048
    NS_PER_MS = 1000000


cdef inline void lower(uint8_t* field, int32_t limit) noexcept:
    if <int32_t> kb_load32(field) > limit:
        kb_store32(field, <unsigned int> limit)


cdef class RequestContext:
    """One request under way: its header, where it came from, and where its answer goes.

    `waiting`: the `Pending` that will answer it.  `left`: what a coroutine that waits wants called when the client is
    gone, or None.
    `gate`: what it has passed, None where nothing was asked.  `throttle_ms`: -1 until its answer is counted there.
    `cacheable`: set by a handler of a cacheable route whose answer is good for equal requests, until the listener
    forgets; `renewal`: what those do besides.  `frame`: a copy of the request as it came, header included, without its
    length, for a route that keeps it; None for others.
    """

    def respond(self, response) -> None:
        """Answer a request that waited; ignored when the connection is gone."""
        self.connection.conclude(self, response, False)

    def respond_frame(self, frame) -> None:
        """The same with an answer that is encoded: bytes, or a list of bytes and file regions."""
        self.connection.conclude(self, frame, True)

    def forward_answer(self, frame, int throttle_ms) -> None:
        """Answer with another node's answer as it is.  That node has counted the request, and throttles this client for
        so long."""
        self.throttle_ms = max(throttle_ms, 0)
        self.respond_frame(frame)

    def fail(self, error) -> None:
        """End the connection, and log the error: what was done for the request is unknown."""
        if self.connection.awaits(self):
            self.connection.failed(self, error)

    def decode(self, bytes request):
        """What stood behind the request's header, as its handler wants it; ValueError for what is no such request."""
        return self.route.decoder(self.api_version)(request, 0, len(request))

    def handle(self, request) -> None:
        """Have its handler serve a request that waited as its bytes."""
        try:
            self.take(self.route.handle(self, request))
        except Exception as error:
            self.fail(error)

    def take(self, response) -> None:
        """Answer a request that waited with what its handler gives now: an answer, a `Pending`, or None."""
        if isinstance(response, Pending):
            (<Pending> response).begin(self)
        elif response is not None:
            self.respond(response)

    def note_error(self, int code) -> None:
        """The answer or a part of it has an error (0: none), which is counted when it is given."""
        if code:
            if self.codes is None:
                self.codes = []
            self.codes.append(code)

    @property
    def open(self) -> bool:
        """Whether an answer would still reach the client."""
        return self.connection.awaits(self)

    # For the connection, where there is a gate

    cdef int lower_limits(self, uint8_t* body, Py_ssize_t size) except -1:
        """Have the request ask for no more bytes than its gate lets through: lowers min_bytes and max_bytes."""
        cdef int32_t limit = self.gate.answer_limit(self)
        cdef Py_ssize_t at = self.route.limits_at(self.api_version)
        if limit >= 0 and 0 <= at and at + 8 <= size:
            lower(body + at, limit)
            lower(body + at + 4, limit)
        return 0

    cdef void rest(self) noexcept:
        """The request waits: time that passes now is not the loop's."""
        if self.gate is not None:
            self.spent_ns += now_ns() - self.resumed_ns
            self.resumed_ns = 0

    cdef int record(self, RequestStats stats, uint64_t now, Py_ssize_t bytes_out) except -1:
        """Counts the request as answered; few have waited, are followers' or have errors."""
        cdef RequestTimes times
        cdef int code
        times.total_ns = now - self.started_ns
        times.queued_ns = self.queued_ns
        times.waited_ns = self.waited_ns
        times.throttled_ns = <uint64_t> self.throttle_ms * NS_PER_MS if self.throttle_ms > 0 else 0
        stats.record(self.api_key, times.total_ns, self.bytes_in, self.body_bytes, bytes_out)
        if times.queued_ns or times.waited_ns or times.throttled_ns:
            stats.record_parts(self.api_key, &times)
        if self.by_follower:
            stats.record_follower(&times, self.body_bytes)
        if self.codes is not None:
            for code in self.codes:
                stats.count_code(self.api_key, code)
        return 0

    cdef void resume(self) noexcept:
        if self.waits_from_ns and not self.waited_ns:
            self.waited_ns = now_ns() - self.waits_from_ns
        if self.gate is not None and self.resumed_ns == 0:
            self.resumed_ns = now_ns()

    cdef int count(self, Py_ssize_t bytes_out) except -1:
        """The throttle time of the request, which is counted now if it was not before."""
        cdef uint64_t spent_ns
        if self.throttle_ms == NOT_COUNTED:
            spent_ns = self.spent_ns + (now_ns() - self.resumed_ns if self.resumed_ns else 0)
            self.throttle_ms, self.withheld = self.gate.settle(self, self.bytes_in, bytes_out, spent_ns)
        return self.throttle_ms

    cdef object throttled(self, object frame):
        """Counts an answer that is encoded; the answer to send in its place."""
        cdef Route route = self.route
        cdef object part, response
        cdef bytes head = frame if type(frame) is bytes else frame[0]
        cdef bytes patched
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t at
        if type(frame) is bytes:
            size = PyBytes_GET_SIZE(head)
        else:
            for part in frame:
                size += len(part) if type(part) is bytes else part.size
        if self.count(size) <= 0 or route.throttle_at is None:
            return frame
        if self.withheld:
            response = self.gate.withheld(self, head, self.throttle_ms)
            if response is not None:
                return route.encoder(self.api_version)(response, self.correlation_id,
                                                       self.api_version >= route.answer_flexible_from, ITEMS)
        at = route.throttle_at(self.api_version)
        if at == 0:
            return frame
        if at < 0:
            at += PyBytes_GET_SIZE(head)
        patched = PyBytes_FromStringAndSize(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
        if 0 < at <= PyBytes_GET_SIZE(head) - 4:
            kb_store32(<uint8_t*> PyBytes_AS_STRING(patched) + at, <unsigned int> self.throttle_ms)
        return patched if type(frame) is bytes else [patched, *frame[1:]]
