"""One client connection: frames in, answers out, in the order the requests came.

A frame is a 4-byte big-endian length and that many bytes; a request starts with api_key int16, api_version int16,
correlation_id int32, client_id as a nullable string with a 2-byte length and, in flexible versions, tagged fields.

One request is under way at a time, as in Kafka: a handler that answers later (`pending`) mutes the connection, and the
frames behind it wait in the receive buffer; so does a connection whose answers
wait (`send_state`).  The states of both sides are in `connection_states`.
While waiting the socket is read until the buffer is full and then paused, so a slow peer holds its own bytes only.
Answers of one wake-up leave together; in a crowded turn of the loop, those of all connections do (`FlushBatch`).

Knows bytes, frames and the `Route` table alone; policy on connections is the listener's, the endpoint's `owner`.
"""

from types import CoroutineType

from kbroker._fast.net.route import NO_RESPONSE

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from kbroker._fast.net.answer_memo cimport AnswerMemo
from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_int16, cursor_int32, cursor_take, kb_load32
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.net.connection_states cimport (
    DEFERRED,
    READY,
    SEND_CLEAR,
    SEND_HELD,
    SEND_LENT,
    SERVING,
    THROTTLED,
    RequestState,
    may_request_next,
)
from kbroker._fast.net.direct cimport DirectRequest, Partly
from kbroker._fast.net.gate cimport Gatekeeper
from kbroker._fast.wire.encoding cimport Encoding
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.wire.request_header cimport skip_tagged_fields
from kbroker._fast.net.request_context cimport NOT_COUNTED, RequestContext
from kbroker._fast.net.responder cimport FLUSH_BYTES, Responder
from kbroker._fast.net.route cimport API_KEYS, Endpoint, Route
from kbroker._fast.net.sender cimport Sender

cdef enum:
    HEADER_BYTES = 8
    # Answers that wait for the end of the wake-up; with more than this the socket is asked first.
    FLUSH_NOW_BYTES = 262144
    # Requests with more than this behind their header are decoded in pieces, answers with more items encoded so.
    LARGE_BYTES = 65536
    FIRST_ITEMS = 2048


cdef object _NO_RESPONSE = NO_RESPONSE


cdef class Connection(Responder):
    """An asyncio BufferedProtocol, made by a listener for each client.  The transport is never written through."""

    def __init__(self, Endpoint endpoint):
        self.endpoint = endpoint
        self.pool = endpoint.pool

    # What the loop calls

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()
        self.sender = Sender(self.fd, self.endpoint.send_threads)
        self.last_active = now_ns() * 1e-9
        self.endpoint.connections.add(self)
        if not self.endpoint.owner.connection_opened(self):
            self.close("refused")

    def buffer_updated(self, Py_ssize_t nbytes) -> None:
        if not self.closed and self.buffer is not None:
            self.received(nbytes)

    cdef int received(self, Py_ssize_t size) except -1:
        cdef uint64_t now = now_ns()
        self.filled += size
        self.last_active = now * 1e-9
        if self.state == DEFERRED:
            # Its bytes stay where they are only until more come.
            self.endpoint.flush_batch.answer_requests()
        self.endpoint.busy_poll.arrived(now, self)
        self._process()
        self.endpoint.busy_poll.served()
        return 0

    def resume_after_budget(self) -> bool:
        self.last_active = now_ns() * 1e-9  # the wait was not the client's doing
        return Responder.resume_after_budget(self)

    def eof_received(self) -> bool:
        if self.state == DEFERRED:
            # It came whole before the end.
            self.endpoint.flush_batch.answer_requests()
            self.resume_sending()
        if self.state != READY and self.stash_bytes + self.filled - self.start > 0:
            # A producer with acks=0 sends and leaves: what it sent is served before the connection goes.
            self.ended = True
            self._abandon(False)
            if self.pending is None:
                self._process()
            return not self.closed
        self.close("closed by the client")
        return False

    def connection_lost(self, error) -> None:
        if self.sender is not None:
            self.sender.clear()
        self.close("closed by the client" if error is None else f"lost: {error}")
        self.transport = None

    # Frames

    cdef int _process(self) except -1:
        cdef Py_ssize_t available, size
        cdef const char* data
        if self.processing:
            return 0
        self.processing = True
        try:
            if self.stash_bytes > 0 and self.buffer is None and self.wanted_bytes == 0:
                self.get_buffer(-1)
            while (not self.closed and self.state == READY and self.send_state == SEND_CLEAR
                   and self.buffer is not None
                   and (self.by_itself or not self.endpoint.draining)):
                available = self.filled - self.start
                if available < 4:
                    break
                data = self.buffer.data + self.start
                size = <int> kb_load32(<const uint8_t*> data)
                if size < 0 or size > self.endpoint.max_frame_bytes or size < HEADER_BYTES:
                    kind, detail = self.endpoint.owner.describe_bad_frame(
                        PyBytes_FromStringAndSize(data, min(available, 16)), size)
                    self._fail("bad frame", detail, kind)
                    break
                if available < 4 + size:
                    break
                self.start += 4 + size
                self._dispatch(self.start - size, self.start)
                if self.sender.queued_bytes >= FLUSH_NOW_BYTES:
                    self._flush()
        except Exception as error:
            self.failed(self.pending, error)
        finally:
            self.processing = False
        if not self.closed:
            if self.send_state == SEND_CLEAR:
                # Otherwise the loop calls again as soon as there is room, and goes on from here.
                if self.sender.queued_bytes > 0 and (
                        self.state == DEFERRED or self.endpoint.flush_batch.delay_flush(self)):
                    self._send_next(SEND_HELD)
                else:
                    self._flush()
            if self.state != DEFERRED:
                self._settle(self.state != READY or self.send_state != SEND_CLEAR)
            if self.ended and self.state == READY and self.send_state == SEND_CLEAR:
                self.close("closed by the client")
            if self.endpoint.draining and not self.busy:
                self.endpoint.owner.went_quiet()

    cdef int _dispatch(self, Py_ssize_t position, Py_ssize_t end) except -1:
        """Read the request header, find the route and run the handler."""
        cdef RequestContext ctx = RequestContext.__new__(RequestContext)
        cdef Route route = None
        cdef const char* id_data
        cdef Py_ssize_t id_bytes
        cdef Cursor cursor
        cursor_init(&cursor, <const uint8_t*> self.buffer.data + position, end - position)
        ctx.started_ns = now_ns()
        ctx.bytes_in = 4 + end - position
        ctx.throttle_ms = NOT_COUNTED
        ctx.connection = self
        ctx.services = self.endpoint.services
        ctx.api_key = cursor_int16(&cursor)
        ctx.api_version = cursor_int16(&cursor)
        ctx.correlation_id = cursor_int32(&cursor)
        id_bytes = cursor_int16(&cursor)
        if id_bytes >= 0:
            id_data = <const char*> cursor_take(&cursor, id_bytes)
            if id_data != NULL:
                ctx.client_id = self._client_id(id_data, id_bytes)
        if cursor.fault:
            return self._fail("malformed header", f"API {ctx.api_key}: {end - position} bytes do not hold a header",
                              ctx.api_key)
        if 0 <= ctx.api_key < API_KEYS:
            route = <Route> self.endpoint.routes[ctx.api_key]
        ctx.route = route
        self.pending = ctx
        self._next(SERVING)
        if route is None or not route.min_version <= ctx.api_version <= route.max_version:
            return self._unsupported(ctx)
        if ctx.api_version >= route.header_flexible_from:
            skip_tagged_fields(&cursor)
            if cursor.fault:
                return self._fail("malformed header", f"API {ctx.api_key}: the header's tagged fields are cut off",
                                  ctx.api_key)
        return self._run(ctx, cursor.position - <const uint8_t*> self.buffer.data, end)

    cdef bint _recall(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether an equal request has an answer that lasts, which is queued; else what this one will be known by."""
        cdef AnswerMemo known = self.endpoint.answers
        cdef bytes frame
        ctx.key = known.key(None if ctx.gate is None else ctx.gate.view, ctx.api_key, ctx.api_version, self._local(),
                            self.buffer.data + position, end - position)
        frame = known.recall(ctx.key, ctx.correlation_id, ctx.client_id, self)
        if frame is None:
            return False
        if ctx.gate is not None and ctx.count(0) > 0:
            return False  # its answer names a throttle time, so it is made anew
        self.sender.queue(frame)
        self._answered(ctx, PyBytes_GET_SIZE(frame))
        return True

    cdef int _run(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        cdef Route route = ctx.route
        cdef object response, handle
        cdef Partly partly = None
        if self.endpoint.reactor.gatekeeper is not None and not self._enter(ctx, position, end):
            return 0
        if route.lasting and self._recall(ctx, position, end):
            return 0
        if route.direct is not None and (ctx.gate is None or ctx.gate.allows_direct):
            if self._defer(ctx, position, end):
                return 0
            response = route.direct.answer(ctx.services, ctx.api_version, ctx.correlation_id,
                                           <uint8_t*> self.buffer.data + position, end - position)
            if isinstance(response, Pending):
                return self._wait(ctx, <Pending> response)
            if type(response) is Partly:
                partly = <Partly> response
            elif response is _NO_RESPONSE:
                return self._answered(ctx, 0)
            elif response is not None:
                return self._queue(ctx, response)
        handle = route.handle if partly is None else partly.go_on
        if end - position > LARGE_BYTES:
            response = route.decoding(ctx.api_version)(self.buffer, position, end)
            return self._wait_for(ctx, self.endpoint.owner.serve_large(ctx, response, handle))
        try:
            response = route.decoder(ctx.api_version)(self.buffer, position, end)
        except ValueError as error:
            return self.malformed(ctx, error)
        response = handle(ctx, response)
        if isinstance(response, Pending):
            return self._wait(ctx, <Pending> response)
        if type(response) is CoroutineType:
            return self._wait_for(ctx, response)
        if response is None:
            return 0
        if self.pending is ctx:
            self._answer(ctx, response)
        return 0

    cdef int _wait(self, RequestContext ctx, Pending answer) except -1:
        """The request is answered later, where the client still listens."""
        ctx.rest()
        answer.begin(ctx)
        return self._abandon(False) if self.ended else 0

    cdef int _wait_for(self, RequestContext ctx, object coroutine) except -1:
        if not self._begin(ctx, coroutine):
            return 0
        ctx.rest()
        return self._abandon(False) if self.ended else 0

    def malformed(self, RequestContext ctx, error) -> int:
        """The request under way cannot be decoded."""
        if self.pending is ctx:
            self._fail("malformed request", f"API {ctx.api_key} version {ctx.api_version}: {error}",
                       (ctx.api_key, ctx.api_version))
        return 0

    def decoded(self) -> None:
        """The request under way no longer needs its bytes, but for those that it refers to."""
        if not self.closed and not self.processing and self.state != DEFERRED:
            self._settle(True)

    cdef bint _defer(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether the request is answered together with others (`FlushBatch`): the last one of those that came.

        Its bytes stay in the buffer, in which there must be room for what comes meanwhile.
        """
        cdef DirectRequest asked
        if self.by_itself or self.ended or self.filled > end or self.filled == self.buffer.capacity:
            self.by_itself = False
            return False
        asked.version = ctx.api_version
        asked.correlation_id = ctx.correlation_id
        asked.data = <uint8_t*> self.buffer.data + position
        asked.size = end - position
        if not self.endpoint.flush_batch.add_request(self, ctx.route.direct, &asked):
            return False
        self._next(DEFERRED)
        return True

    cdef int finish(self, object frame) except -1:
        cdef RequestContext ctx = self.pending
        self._next(SERVING)
        if self.send_state == SEND_CLEAR:
            self._send_next(SEND_HELD)
        ctx.resume()
        if isinstance(frame, Pending):
            # Held until the end of the iteration, when the connection goes on; the answer may be there by then.
            ctx.rest()
            (<Pending> frame).begin(ctx)
            return self._settle(True)
        if frame is not None:
            self._queue(ctx, frame)
            return self._settle(True)
        # Begun again, by itself, when the connection goes on.
        self.pending = None
        self._next(READY)
        self.by_itself = True
        self.start -= ctx.bytes_in
        return 0

    cdef int give_up(self, object error) except -1:
        self._next(SERVING)
        return self.failed(self.pending, error)

    cdef bint awaits(self, object ctx) noexcept:
        return not self.closed and <object> self.pending is ctx

    cdef int conclude(self, object ctx, object response, bint encoded) except -1:
        if not self.awaits(ctx):
            return 0
        (<RequestContext> ctx).resume()
        try:
            if encoded:
                self._queue(<RequestContext> ctx, response)
            else:
                self._answer(<RequestContext> ctx, response)
            if not self.processing:
                self._process()
        except Exception as error:
            self.failed(ctx, error)
        return 0

    cdef int failed(self, object ctx, object error) except -1:
        self.endpoint.owner.handler_failed(ctx, error)
        self.close("a request failed")
        return 0

    def _unsupported(self, RequestContext ctx) -> int:
        frame = self.endpoint.owner.unsupported(ctx)
        if frame is None:
            return self._fail("unsupported request", f"API {ctx.api_key} version {ctx.api_version} is not served",
                              (ctx.api_key, ctx.api_version))
        self.pending = None
        self._next(READY)
        self.sender.queue(frame)
        return 0

    cdef int _answer(self, RequestContext ctx, object response) except -1:
        cdef Route route = ctx.route
        cdef object frame
        if response is _NO_RESPONSE:
            return self._answered(ctx, 0)
        if ctx.gate is not None and route.limits_at is None and ctx.count(0) > 0:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, ctx.throttle_ms)
        frame = route.encoder(ctx.api_version)(response, ctx.correlation_id,
                                               ctx.api_version >= route.answer_flexible_from, FIRST_ITEMS)
        if type(frame) is Encoding:
            return self._wait_for(ctx, self.endpoint.owner.send_large(ctx, frame, [response]))
        if ctx.lasting and ctx.key is not None and type(frame) is bytes and ctx.throttle_ms <= 0:
            self.endpoint.answers.keep(ctx.key, <bytes> frame, ctx.repetition)
        return self._queue(ctx, frame)

    cdef int _queue(self, RequestContext ctx, object frame) except -1:
        cdef Py_ssize_t before = self.sender.queued_bytes
        if ctx.gate is not None and ctx.throttle_ms == NOT_COUNTED:
            frame = ctx.throttled(frame)
        if type(frame) is bytes:
            self.sender.queue(frame)
        else:
            self.sender.queue_frame(frame)
        return self._answered(ctx, self.sender.queued_bytes - before)

    cdef int _answered(self, RequestContext ctx, Py_ssize_t bytes_out) except -1:
        cdef uint64_t now = now_ns()
        self.pending = None
        self.last_active = now * 1e-9
        self.endpoint.stats.record(ctx.api_key, now - ctx.started_ns, ctx.bytes_in, bytes_out)
        if ctx.gate is not None and ctx.count(bytes_out) > 0:
            return self._mute(ctx.throttle_ms)
        return self._next(READY)

    # The gate

    cdef bint _enter(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether the request is served; where not, the gate has closed the connection."""
        cdef Gatekeeper keeper = self.endpoint.reactor.gatekeeper
        if self.gate_generation != keeper.generation or self.gate_client_id is not ctx.client_id:
            self.gate = keeper.gate_for(self, ctx.client_id)
            self.gate_generation = keeper.generation
            self.gate_client_id = ctx.client_id
        if self.gate is None:
            return True
        ctx.gate = self.gate
        ctx.resumed_ns = ctx.started_ns
        if not ctx.gate.admit(ctx):
            return False
        if ctx.route.limits_at is not None:
            ctx.lower_limits(<uint8_t*> self.buffer.data + position, end - position)
        return True

    cdef int _mute(self, int throttle_ms) except -1:
        """Begin no further request for so long (KIP-219)."""
        self._next(THROTTLED)
        # The loop's timers count whole milliseconds from its last look at the clock: without one more the time could be
        # shorter than the answer says.
        self.endpoint.loop.call_later((throttle_ms + 1) / 1000.0, self.unmute)
        return 0

    def mute(self) -> None:
        """Begin no further request until `unmute`."""
        self._next(THROTTLED)

    def unmute(self) -> None:
        """The throttle time is over."""
        self._next(READY)
        if not self.closed:
            self.last_active = now_ns() * 1e-9
            self._process()

    cdef int _next(self, RequestState then) except -1:
        assert may_request_next(self.state, then), (self.state, then)
        self.state = then
        return 0

    @property
    def throttled(self) -> bool:
        return self.state == THROTTLED

    # Closing, and what others may ask

    cdef int _fail(self, str reason, str detail, object kind) except -1:
        """Close the connection for what it sent; `kind` tells it from others with that reason, in the log."""
        self.endpoint.owner.bad_request(self, reason, detail, kind)
        self.close(reason)
        return 0

    cdef int _abandon(self, bint closed) except -1:
        """Give up a request that waits, as the client is gone; not `closed`: only where its answer may be dropped."""
        cdef RequestContext ctx = self.pending
        cdef Pending answer
        if ctx is not None and ctx.waiting is not None:
            answer = ctx.waiting
            if closed or answer.is_abandonable():
                self.pending = None
                self._next(READY)
                answer.lose()
        return 0

    def close(self, str reason="closed") -> None:
        """Close now; what is queued for the client and the kernel does not take at once is dropped."""
        if self.state == DEFERRED:
            self.endpoint.flush_batch.answer_requests()
        if self.closed:
            return
        self.closed = True
        if self.sender is not None:
            try:
                # The requests before the one that ends the connection were served: their answers leave if they can.
                self.sender.flush(FLUSH_BYTES, None)
            except OSError:
                pass  # The client is gone: there is no reader for them.
            self.sender.clear()
        self._unwatch()
        if self.buffer is not None:
            self._give_back()
        if self.wanted_bytes > 0:
            self.wanted_bytes = 0
            # Those who wait behind this one may fit.
            self.pool.wake()
        self.endpoint.connections.discard(self)
        self.endpoint.owner.connection_closed(self, reason)
        if self.transport is not None:
            self.transport.abort()
        self._abandon(True)
        self.pending = None

    @property
    def busy(self) -> bool:
        """Whether a request is under way or an answer not yet with the kernel."""
        return self.pending is not None or self.send_state != SEND_CLEAR

    @property
    def serving(self) -> bool:
        """Whether it is the broker, not the client, that is waited for."""
        return self.state != READY or self.send_state == SEND_LENT

    @property
    def holds_budget(self) -> bool:
        """Whether an unfinished large frame of it takes memory that others may wait for."""
        return (self.buffer is not None and self.buffer.counted and self.pending is None
                and self.send_state == SEND_CLEAR)
