"""Serves the requests of one connection, one at a time, and queues their answers.

A request starts with api_key int16, api_version int16, correlation_id int32, client_id as a nullable string with a
2-byte length and, in flexible versions, tagged fields.  It passes the gate, and is then answered from the answer memo,
in C from its bytes (alone, or with others at the end of the turn), or by its handler, now or later.  `is_trusted`: the
client's session may send every request that the gate admits; without a session nothing is served.  `takes_tokens`:
frames are tokens of the session's authentication.  `state` (`RequestState`) says how far it is, `pending` is the
request while it is under way; `asked`: what the client has come for by now (`Route.asks`).  The server counts its
answered requests, and keeps the client's ApiVersions request, for the listings of connections.
Its bytes are in the frame reader's buffer, where they stay until `settle`.
"""

from types import CoroutineType

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.net.route import NO_RESPONSE

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_int16, cursor_int32, cursor_take
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.net.answer_memo cimport AnswerMemo
from kbroker._fast.net.answer_queue cimport AnswerQueue
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport (
    AGAIN, CLOSED, DEFERRED, OPEN, READY, SEND_CLEAR, SERVING, THROTTLED, WAITING, RequestState, may_request_next
)
from kbroker._fast.net.direct cimport DirectRequest, PartialAppend
from kbroker._fast.net.frame_reader cimport FrameReader
from kbroker._fast.gate.gate cimport Gatekeeper
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.net.request_context cimport NOT_COUNTED, RequestContext
from kbroker._fast.net.route cimport API_KEYS, Endpoint, Route
from kbroker._fast.net.socket_part cimport SocketPart
from kbroker._fast.wire.encoding cimport Encoding
from kbroker._fast.wire.request_header cimport skip_tagged_fields

cdef enum:
    # Requests with more than this behind their header are decoded in pieces, answers with more items encoded so.
    LARGE_BYTES = 65536
    FIRST_ITEMS = 2048
    CONTROLLED_SHUTDOWN = 7
    NO_GENERATION = -1
    API_VERSIONS = 18


cdef object _NO_RESPONSE = NO_RESPONSE


cdef class RequestServer:
    """The requests of `connection`, which outlives the last of them."""

    def __cinit__(self, ConnectionInterface connection not None, Endpoint endpoint not None, SocketPart socket not None,
                  FrameReader frames not None, AnswerQueue answers not None):
        self.connection = connection
        self.endpoint = endpoint
        self.socket = socket
        self.frames = frames
        self.answers = answers

    cdef int serve(self, Py_ssize_t position, Py_ssize_t end) except -1:
        """Read the request header, find the route and run the handler; give a token to the session."""
        cdef RequestContext ctx = RequestContext.__new__(RequestContext)
        cdef Route route = None
        cdef const char* id_data
        cdef Py_ssize_t id_bytes
        cdef Cursor cursor
        cdef uint8_t* data = <uint8_t*> self.frames.buffer.data
        if self.takes_tokens:
            answer = (<object> self.connection).session.take_token(self.connection, (<char*> data)[position:end])
            if answer is not None:
                self.answers.add(answer)
            return 0
        cursor_init(&cursor, data + position, end - position)
        ctx.started_ns = now_ns()
        if self.state == AGAIN:
            ctx.queued_ns = ctx.started_ns - self.began_ns
            ctx.started_ns = self.began_ns
        ctx.bytes_in = 4 + end - position
        ctx.throttle_ms = NOT_COUNTED
        ctx.by_itself = self.state == AGAIN
        ctx.connection = self.connection
        ctx.services = self.endpoint.services
        ctx.api_key = cursor_int16(&cursor)
        ctx.api_version = cursor_int16(&cursor)
        ctx.correlation_id = cursor_int32(&cursor)
        # ControlledShutdown 0 alone, as Kafka 0.8.2 sends it, has no client id.
        id_bytes = cursor_int16(&cursor) if ctx.api_key != CONTROLLED_SHUTDOWN or ctx.api_version else -1
        if id_bytes >= 0:
            id_data = <const char*> cursor_take(&cursor, id_bytes)
            if id_data != NULL:
                ctx.client_id = self._client_id(id_data, id_bytes)
        if CHECKED:
            assert self.pending is None, "one request of a connection at a time"
        self.pending = ctx
        self._next(SERVING)
        if not cursor.fault and 0 <= ctx.api_key < API_KEYS:
            route = <Route> self.endpoint.routes[ctx.api_key]
        ctx.route = route
        if route is not None:
            self.asked |= route.asks
            if route.header_flexible_from <= ctx.api_version <= route.max_version:
                skip_tagged_fields(&cursor)
        if cursor.fault:
            return self.refuse(("malformed header", f"API {ctx.api_key}: {end - position} bytes do not hold a header",
                                ctx.api_key))
        if route is None or not route.min_version <= ctx.api_version <= route.max_version:
            return self._unsupported(ctx)
        return self._run(ctx, cursor.position - data, end)

    cdef bint _recall(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether the memo has an answer to an equal request; it is then queued.  Sets the key under which the answer
        to this request may be kept."""
        cdef AnswerMemo known = self.endpoint.answers
        cdef bytes frame
        ctx.key = known.key(None if ctx.gate is None else ctx.gate.view, ctx.api_key, ctx.api_version,
                            self.socket.local_address(), self.frames.buffer.data + position, end - position)
        if ctx.api_key == API_VERSIONS and ctx.key is not None:
            # Who the client says that it is: kept as it came, for the few who ask.
            self.introduction = (ctx.api_version, (<tuple> ctx.key)[2])
        frame = known.recall(ctx.key, ctx.correlation_id, ctx.client_id, self.connection)
        if frame is None:
            return False
        if ctx.gate is not None and ctx.count(0) > 0:
            return False  # its answer names a throttle time, so it is made anew
        self.answers.add(frame)
        self._answered(ctx, PyBytes_GET_SIZE(frame))
        return True

    cdef int _run(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        cdef Route route = ctx.route
        cdef object response, handle
        cdef PartialAppend partial = None
        ctx.body_bytes = end - position
        if ((not self.is_trusted or self.endpoint.gatekeeper is not None)
                and not self._enter(ctx, position, end)) or (route.cacheable and self._recall(ctx, position, end)):
            return 0
        if route.direct is not None and (ctx.gate is None or ctx.gate.allows_direct):
            if self._defer(ctx, position, end):
                return 0
            response = route.direct.answer(ctx.services, ctx.api_version, ctx.correlation_id,
                                           <uint8_t*> self.frames.buffer.data + position, end - position, ctx.gate)
            if isinstance(response, Pending):
                return self._wait(ctx, <Pending> response)
            if type(response) is PartialAppend:
                partial = <PartialAppend> response
            elif response is _NO_RESPONSE:
                return self._answered(ctx, 0)
            elif response is not None:
                return self._queue(ctx, response)
        if route.keeps_frame:
            ctx.frame = PyBytes_FromStringAndSize(self.frames.buffer.data + end - ctx.bytes_in + 4, ctx.bytes_in - 4)
        handle = route.handle if partial is None else partial.continue_in_handler
        if end - position > LARGE_BYTES:
            response = route.decoding(ctx.api_version)(self.frames.buffer, position, end)
            return self._wait_for(ctx, self.endpoint.owner.serve_large(ctx, response, handle))
        try:
            response = route.decoder(ctx.api_version)(self.frames.buffer, position, end)
        except ValueError as error:
            return self.malformed(ctx, error)
        response = handle(ctx, response)
        if isinstance(response, Pending):
            return self._wait(ctx, <Pending> response)
        if type(response) is CoroutineType:
            return self._wait_for(ctx, response)
        if response is None:
            return self._await(ctx)
        if self.pending is ctx:
            self._answer(ctx, response)
        return 0

    cdef int _wait(self, RequestContext ctx, Pending answer) except -1:
        """The request is answered later, where the client still listens."""
        ctx.rest()
        answer.begin(ctx)
        return self._await(ctx)

    cdef int _wait_for(self, RequestContext ctx, object coroutine) except -1:
        """Run a coroutine handler up to its first wait, and have the owner run the rest; most handlers never wait."""
        cdef object response
        try:
            response = coroutine.send(None)
        except StopIteration as stop:
            ctx.take(stop.value)
            if not self.connection.awaits(ctx):
                return 0
        else:
            self.endpoint.owner.spawn(ctx, coroutine, response)
        ctx.rest()
        return self._await(ctx)

    cdef int _await(self, RequestContext ctx) except -1:
        """Where the request was not answered by now, its answer comes later."""
        if self.connection.life == CLOSED or self.pending is not ctx:
            return 0
        if self.state == SERVING:
            self._next(WAITING)
            ctx.waits_from_ns = now_ns()
        return 0

    cdef int malformed(self, RequestContext ctx, object error) except -1:
        """The request under way cannot be decoded."""
        return 0 if self.pending is not ctx else self.refuse((
            "malformed request", f"API {ctx.api_key} version {ctx.api_version}: {error}",
            (ctx.api_key, ctx.api_version)))

    cdef bint _defer(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether the request is answered together with others (`FlushBatch`): the last one of those that came.

        Its bytes stay in the buffer, in which there must be room for what comes meanwhile.
        """
        cdef DirectRequest asked
        cdef FrameReader frames = self.frames
        if ctx.by_itself or self.connection.life != OPEN:
            return False
        if frames.filled > end or frames.filled == frames.buffer.capacity:
            return False
        asked.version = ctx.api_version
        asked.correlation_id = ctx.correlation_id
        asked.data = <uint8_t*> self.frames.buffer.data + position
        asked.size = end - position
        asked.gate = <void*> ctx.gate
        if not self.endpoint.flush_batch.add_request(self.connection, ctx.services, ctx.route.direct, &asked):
            return False
        self._next(DEFERRED)
        return True

    cdef int finish(self, object frame) except -1:
        cdef RequestContext ctx = self.pending
        if self.answers.state == SEND_CLEAR:
            self.answers.hold()
        if frame is None:
            # Begun again, by itself, when the connection goes on.
            self.pending = None
            self.began_ns = ctx.started_ns
            self._next(AGAIN)
            self.frames.start -= ctx.bytes_in
            return 0
        self._next(SERVING)
        ctx.queued_ns = self.endpoint.flush_batch.begun_ns - ctx.started_ns
        ctx.resume()
        if isinstance(frame, Pending):
            # Held until the end of the iteration, when the connection goes on; the answer may be there by then.
            self._wait(ctx, <Pending> frame)
        else:
            self._queue(ctx, frame)
        return self.frames.settle(True)

    cdef bint conclude(self, RequestContext ctx, object response, bint encoded) except -1:
        """Queue the answer of the request under way.  Returns whether the request had waited: the requests behind it
        are then to be served."""
        cdef bint waited = self.state == WAITING
        if waited:
            self._next(SERVING)
        ctx.resume()
        if encoded:
            self._queue(ctx, response)
        else:
            self._answer(ctx, response)
        return waited

    cdef int _unsupported(self, RequestContext ctx) except -1:
        frame = self.endpoint.owner.unsupported(ctx)
        if frame is None:
            return self.refuse(("unsupported request", f"API {ctx.api_key} version {ctx.api_version} is not served",
                                (ctx.api_key, ctx.api_version)))
        self.pending = None
        self._next(READY)
        self.answers.add(frame)
        return 0

    cdef int _answer(self, RequestContext ctx, object response) except -1:
        cdef Route route = ctx.route
        cdef object frame
        if response is _NO_RESPONSE:
            return self._answered(ctx, 0)
        ctx.note_error(getattr(response, "error_code", 0))
        if ctx.gate is not None and route.limits_at is None and ctx.count(0) > 0:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, ctx.throttle_ms)
        frame = route.encoder(ctx.api_version)(response, ctx.correlation_id,
                                               ctx.api_version >= route.answer_flexible_from, FIRST_ITEMS)
        if type(frame) is Encoding:
            return self._wait_for(ctx, self.endpoint.owner.send_large(ctx, frame, [response]))
        if ctx.cacheable and ctx.key is not None and type(frame) is bytes and ctx.throttle_ms <= 0:
            self.endpoint.answers.keep(ctx.key, <bytes> frame, ctx.renewal)
        return self._queue(ctx, frame)

    cdef int _queue(self, RequestContext ctx, object frame) except -1:
        cdef Py_ssize_t before = self.answers.queued_bytes
        if ctx.gate is not None and ctx.throttle_ms == NOT_COUNTED:
            frame = ctx.throttled(frame)
        if type(frame) is bytes:
            self.answers.add(frame)
        else:
            self.answers.add_frame(frame)
        return self._answered(ctx, self.answers.queued_bytes - before)

    cdef int _answered(self, RequestContext ctx, Py_ssize_t bytes_out) except -1:
        cdef uint64_t now = now_ns()
        if CHECKED:
            assert self.pending is ctx, "one answer for each request, in the order of the requests"
            assert bytes_out >= 0, bytes_out
        self.pending = None
        self.connection.last_active = now * 1e-9
        self.request_count += 1
        self.bytes_in += ctx.bytes_in
        self.bytes_out += bytes_out
        if ctx.gate is not None:
            ctx.count(bytes_out)
        ctx.record(self.endpoint.stats, now, bytes_out)
        self.answers.answered(ctx.api_key, ctx.by_follower, now - ctx.started_ns, now)
        return self._mute(ctx.throttle_ms) if ctx.throttle_ms > 0 else self._next(READY)

    # The gate

    cdef bint _enter(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether the request is served; where not, the connection has been closed."""
        cdef Gatekeeper keeper = self.endpoint.gatekeeper
        if keeper is None or not self.has_session:
            return self._refuse_unauthenticated(ctx)
        if self.gate_generation != keeper.generation or self.gate_client_id is not ctx.client_id:
            self.gate = keeper.gate_for(self.connection, ctx.client_id)
            self.gate_generation = keeper.generation
            self.gate_client_id = ctx.client_id
        if self.gate is None:
            return self.is_trusted or self._refuse_unauthenticated(ctx)
        ctx.gate = self.gate
        ctx.resumed_ns = ctx.started_ns + ctx.queued_ns
        if not ctx.gate.admit(ctx):
            return False
        if ctx.route.limits_at is not None:
            ctx.lower_limits(<uint8_t*> self.frames.buffer.data + position, end - position)
        return True

    cdef bint _refuse_unauthenticated(self, RequestContext ctx) except -1:
        self.refuse(("unauthenticated request", f"API {ctx.api_key}: the client has not authenticated", ctx.api_key))
        return False

    cdef int change_session(self, object session) except -1:
        """Takes the client's session: the gate of the one before counts no more."""
        self.has_session = session is not None
        self.is_trusted = session is not None and session.is_authenticated
        self.takes_tokens = session is not None and session.takes_tokens
        self.gate = None
        self.gate_generation = NO_GENERATION
        return 0

    cdef int _mute(self, int throttle_ms) except -1:
        """Begin no further request for so long (KIP-219)."""
        self._next(THROTTLED)
        # The loop's timers count whole milliseconds from its last look at the clock: without one more the time could be
        # shorter than the answer says.
        self.endpoint.loop.call_later((throttle_ms + 1) / 1000.0, (<object> self.connection).unmute)
        return 0

    cdef int mute(self) except -1:
        """Begin no further request until `unmute`."""
        return self._next(THROTTLED)

    cdef int unmute(self) except -1:
        return self._next(READY)

    cdef int _next(self, RequestState then) except -1:
        assert may_request_next(self.state, then), (self.state, then)
        self.state = then
        return 0

    cdef int refuse(self, tuple why) except -1:
        """Close the connection for what it sent, behind the answers to what came before, as Kafka does."""
        if self.answers.state == SEND_CLEAR:
            self.answers.flush(0)
        if self.answers.state != SEND_CLEAR and self.connection.life != CLOSED:
            self.refusal = None if self.state == READY else why
            return self._next(WAITING) if self.state == SERVING else 0
        self.endpoint.owner.bad_request(self.connection, *why)
        (<object> self.connection).close(why[0])
        return 0

    cdef int abandon(self) except -1:
        """Give up a request that waits, as the client is gone."""
        cdef RequestContext ctx = self.pending
        cdef Pending answer
        if ctx is not None and ctx.waiting is not None:
            answer = ctx.waiting
            self.pending = None
            self._next(READY)
            answer.lose()
        return 0

    cdef str _client_id(self, const char* data, Py_ssize_t size):
        """The client id as text; the last one seen on this connection is kept, as clients repeat it."""
        if (self.client_id_bytes is None or PyBytes_GET_SIZE(self.client_id_bytes) != size
                or memcmp(PyBytes_AS_STRING(self.client_id_bytes), data, size) != 0):
            self.client_id_bytes = PyBytes_FromStringAndSize(data, size)
            self.client_id_text = self.client_id_bytes.decode("utf-8", "replace")
        return self.client_id_text
