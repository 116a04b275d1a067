"""One client connection: frames in, answers out, in the order the requests came.

A frame is a 4-byte big-endian length and as many bytes.  The connection has a socket part, a frame reader, a server of
its requests, and a queue of answers, which know it as a `ConnectionInterface`; the states of all are in
`connection_states`.  One request is under way at a time, as in Kafka: a handler that answers later (`pending`) mutes
the connection, and the frames behind the request wait in the receive buffer.  Frames also wait there while answers are
queued for the socket.  Of all connections of a loop one at a time serves requests.  An answer that a handler gives
later is queued until no connection is serving a request (`ReadyQueue`).  While a request waits, its connection's socket
is read until the receive buffer is full, and reading is then paused: a slow peer holds up its own bytes only.  Answers
of one wake-up leave together; in a crowded turn of the loop, those of all connections do (`FlushBatch`).

The connection knows only bytes, frames and the `Route` table; the policy on connections belongs to the listener, which
is the endpoint's `owner`.
"""

from libc.stdint cimport uint64_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.net.answer_queue cimport AnswerQueue
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport (
    AGAIN, CLOSED, DEFERRED, ENDING, OPEN, READY, SEND_CLEAR, SEND_LENT, SERVING, THROTTLED, WAITING, LifeState,
    may_live_on,
)
from kbroker._fast.net.flush_batch cimport TurnShare
from kbroker._fast.net.frame_reader cimport FrameReader
from kbroker._fast.net.request_context cimport RequestContext
from kbroker._fast.net.request_server cimport RequestServer
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.socket_part cimport SocketPart

cdef enum:
    HEADER_BYTES = 8
    # Answers that wait for the end of the wake-up; with more than this the socket is asked first.
    FLUSH_NOW_BYTES = 262144

cdef str UNKNOWN = "unknown"


cdef class Connection(ConnectionInterface):
    """Made by a listener for each client, and given to a socket part."""

    def __init__(self, Endpoint endpoint):
        self.endpoint = endpoint

    # For its parts

    cdef int opened(self, object socket) except -1:
        self.socket = <SocketPart?> socket
        self.frames = FrameReader(self.endpoint.pool, self.socket, self)
        self.answers = AnswerQueue(self.socket, self, self.endpoint)
        self.requests = RequestServer(self, self.endpoint, self.socket, self.frames, self.answers)
        self.last_active = now_ns() * 1e-9
        self.endpoint.connections.add(self)
        if not self.endpoint.owner.connection_opened(self):
            self.close("refused")
        return 0

    cdef object room(self):
        return self.frames.room()

    cdef int received(self, Py_ssize_t size) except -1:
        cdef uint64_t now
        if self.life == CLOSED or self.frames.buffer is None or (size == 0 and self.requests.state == DEFERRED):
            return 0
        if size == 0:
            return self.frames.settle(self._may_have_frames())
        now = now_ns()
        self.frames.filled += size
        self.last_active = now * 1e-9
        if self.requests.state == DEFERRED:
            # Its bytes stay where they are only until more come.
            self.endpoint.flush_batch.answer_requests()
        self.endpoint.busy_poll.arrived(now, self)
        self._process()
        self.endpoint.busy_poll.served()
        return 0

    cdef ssize_t look(self) except -2:
        cdef ssize_t got
        if self.life == CLOSED:
            return -1
        got = self.frames.look()
        if got > 0:
            try:
                self.received(got)
            except BaseException:
                # As the loop does with what it hands out itself.
                self.close("a request failed")
                raise
        return got

    cdef int memory_came(self) except -1:
        self.last_active = now_ns() * 1e-9  # the wait was not the client's doing
        return 0

    cdef bint end_of_requests(self) except -1:
        """Whether the connection goes on.  The requests that came before the end of the stream are served and answered
        in order: the client may have shut down its sending side only, and Kafka, too, sees the end only behind the last
        request."""
        if self.life == OPEN and (self._may_have_frames() or self.frames.has_rest()):
            self._live_on(ENDING)
            if self.requests.state == READY and self.answers.state == SEND_CLEAR:
                self._process()
            return self.life != CLOSED
        self.close("closed by the client")
        return False

    cdef int lost(self, object error) except -1:
        if self.answers is not None:
            self.answers.drop()
        self.close("closed by the client" if error is None else f"lost: {error}")
        if self.requests is not None:
            self.requests.connection = None
        return 0

    cdef int resume(self) except -1:
        cdef uint64_t now
        if self.life == CLOSED or self.answers.state == SEND_LENT:
            return 0
        now = now_ns()
        self.last_active = now * 1e-9
        self.answers.flush(now)
        if self.life != CLOSED and self.answers.state == SEND_CLEAR:
            return self._process() if self.requests.refusal is None else self.requests.refuse(self.requests.refusal)
        return 0

    def helped(self, Py_ssize_t sent=0) -> None:
        """Go on after a thread has read a cold range into the page cache, has failed to, or has sent `sent` bytes."""
        if self.life != CLOSED:
            self.answers.helped(sent)
            self.resume()

    # Frames

    cdef int _process(self) except -1:
        """Serve the frames that are there, until one is answered later, answers wait, or others have a turn; then do
        what became ready."""
        cdef ReadyQueue ready = self.endpoint.ready
        cdef FrameReader frames = self.frames
        cdef AnswerQueue answers = self.answers
        cdef RequestServer requests = self.requests
        cdef Py_ssize_t available, size, most
        cdef TurnShare share = TurnShare(0.0, 0)
        if requests.state == SERVING:
            return 0
        if not ready.begin():
            ready.put(self.go_on)
            return 0
        self.resting = False
        try:
            frames.take_up()
            while (self.life != CLOSED and answers.state == SEND_CLEAR and frames.buffer is not None
                   and ((requests.state == READY and not self.endpoint.draining) or requests.state == AGAIN)):
                available = frames.next_frame(&size)
                if available < 4:
                    break
                most = self.endpoint.max_frame_bytes if requests.is_trusted else self.endpoint.first_frame_bytes
                if size < 0 or size > most or (size < HEADER_BYTES and not requests.takes_tokens):
                    kind, detail = self.endpoint.owner.describe_bad_frame(
                        frames.beginning(), size, requests.is_trusted)
                    requests.refuse(("bad frame", detail, kind))
                    break
                if available < 4 + size:
                    break
                if self.endpoint.flush_batch.is_over(&share, self.last_active):
                    self.resting = True
                    self.endpoint.loop.call_soon(self.go_on)
                    break
                frames.start += 4 + size
                if CHECKED:
                    assert frames.start <= frames.filled <= frames.buffer.capacity, (frames.start, frames.filled)
                    assert self.life != CLOSED, "a request of a connection that is closed"
                requests.serve(frames.start - size, frames.start)
                if answers.queued_bytes >= FLUSH_NOW_BYTES:
                    answers.flush(0)
        except Exception as error:
            self.failed(requests.pending, error)
        finally:
            ready.end()
        if self.life != CLOSED:
            self._send_and_settle()
        return ready.drain()

    cdef bint _may_have_frames(self) noexcept:
        return self.resting or self.requests.state != READY or self.answers.state != SEND_CLEAR

    cdef int _send_and_settle(self) except -1:
        """Send the answers, and release the receive buffer's bytes of the requests that were served."""
        cdef FrameReader frames = self.frames
        cdef AnswerQueue answers = self.answers
        cdef RequestServer requests = self.requests
        if answers.state == SEND_CLEAR:
            # Otherwise the loop calls again as soon as there is room, and goes on from here.
            if answers.queued_bytes > 0 and (
                    requests.state == DEFERRED or self.endpoint.flush_batch.delay_flush(self)):
                answers.hold()
            else:
                # A request that waits has begun to after the answers before it.
                answers.flush(0 if requests.pending is None else requests.pending.waits_from_ns)
        if requests.state != DEFERRED:
            frames.settle(self._may_have_frames())
        if self.life == ENDING and not self._may_have_frames():
            self.close("closed by the client")
        if self.endpoint.draining and not self.is_busy():
            self.endpoint.owner.went_quiet()
        return 0

    def go_on(self) -> None:
        """No other request is being served: serve the frames that are there."""
        if self.life != CLOSED:
            self.last_active = now_ns() * 1e-9
            self._process()

    # For requests

    def decoded(self) -> None:
        """The request under way no longer needs its bytes in the buffer, except those that its struct refers to."""
        if self.life != CLOSED and self.requests.state == WAITING:
            self.frames.settle(True)

    def malformed(self, RequestContext ctx, error) -> int:
        """The request under way cannot be decoded."""
        return self.requests.malformed(ctx, error) if self.awaits(ctx) else 0

    cdef int finish(self, object frame) except -1:
        return 0 if self.life == CLOSED else self.requests.finish(frame)

    cdef int give_up(self, object error) except -1:
        return 0 if self.life == CLOSED else self.failed(self.requests.pending, error)

    cdef bint awaits(self, object ctx) noexcept:
        return self.life != CLOSED and <object> self.requests.pending is ctx

    cdef int conclude(self, object ctx, object response, bint encoded) except -1:
        if not self.awaits(ctx):
            return 0
        if self.requests.state == WAITING:
            self.endpoint.ready.put(self.answer, ctx, response, encoded)
            return 0
        return self._answer(ctx, response, encoded)

    def answer(self, ctx, response, bint encoded) -> None:
        """Answer the request under way; no other is being served."""
        if self.awaits(ctx):
            self._answer(ctx, response, encoded)

    cdef int _answer(self, object ctx, object response, bint encoded) except -1:
        try:
            if self.requests.conclude(<RequestContext> ctx, response, encoded):
                self._process()
        except Exception as error:
            self.failed(ctx, error)
        return 0

    cdef int failed(self, object ctx, object error) except -1:
        self.endpoint.owner.handler_failed(ctx, error)
        self.close("a request failed")
        return 0

    def mute(self) -> None:
        """Begin no further request until `unmute`."""
        self.requests.mute()

    def unmute(self) -> None:
        """The throttle time is over."""
        if self.life != CLOSED:
            self.requests.unmute()
            self.last_active = now_ns() * 1e-9
            self._process()

    # The client's session

    @property
    def session(self):
        """The client's principal and the state of its authentication (`security.principal.Session`); without a session
        (None) nothing is served."""
        return self._session

    @session.setter
    def session(self, session):
        self._session = session
        self.requests.change_session(session)

    # Closing, and what others may ask

    cdef int _live_on(self, LifeState then) except -1:
        assert may_live_on(self.life, then), (self.life, then)
        self.life = then
        return 0

    def close(self, str reason="closed") -> None:
        if self.life != CLOSED and self.requests is not None and self.requests.state == DEFERRED:
            if self.endpoint.ready.serving:
                # Its bytes are needed for the answer, which cannot be worked out now.
                self.endpoint.ready.put(self.close, reason)
                return
            self.endpoint.flush_batch.answer_requests()
        if self.life == CLOSED:
            return
        self._live_on(CLOSED)
        if self.socket is not None:
            self.answers.close()
            self.frames.close()
        self.endpoint.connections.discard(self)
        self.endpoint.owner.connection_closed(self, reason)
        if self.socket is not None:
            self.socket.close()
            self.requests.abandon()
            self.requests.pending = None
        if CHECKED and self.answers is not None:
            assert self.answers.queued_bytes == 0, "answers of a connection that is closed"
            assert self.frames.buffer is None, "a buffer of a connection that is closed"

    cdef bint is_busy(self) noexcept:
        return self.socket is not None and (self.requests.pending is not None or self.answers.state != SEND_CLEAR)

    @property
    def busy(self) -> bool:
        """Whether a request is under way or an answer not yet with the kernel."""
        return self.is_busy()

    @property
    def serving(self) -> bool:
        """Whether the client waits for the broker, rather than the broker for the client."""
        return self.requests.state != READY or self.answers.state == SEND_LENT

    @property
    def holds_budget(self) -> bool:
        """Whether an unfinished large frame of this connection holds memory that other connections may wait for."""
        return (self.frames.buffer is not None and self.frames.buffer.counted and self.requests.pending is None
                and self.answers.state == SEND_CLEAR)

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self.life == CLOSED

    @property
    def ended(self) -> bool:
        """Whether the client has sent its last request, and those before it are still being served."""
        return self.life == ENDING

    @property
    def throttled(self) -> bool:
        """Whether its next request waits for the end of a throttle time."""
        return self.requests.state == THROTTLED

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return 0 if self.answers is None else self.answers.queued_bytes

    @property
    def client_id(self) -> str:
        """What the client called itself in its last request; None before the first, and where it does not say."""
        return None if self.requests is None else self.requests.client_id_text

    @property
    def introduction(self) -> tuple:
        """Version and body of its ApiVersions request; None where there was none."""
        return None if self.requests is None else self.requests.introduction

    @property
    def traffic(self) -> tuple:
        """Requests that were answered, their bytes, bytes of the answers."""
        if self.requests is None:
            return 0, 0, 0
        return self.requests.request_count, self.requests.bytes_in, self.requests.bytes_out

    @property
    def asked(self) -> int:
        """The kinds of requests that the client has sent so far: the bits of their routes (`Route.asks`)."""
        return 0 if self.requests is None else self.requests.asked

    @property
    def listener_name(self) -> str:
        return self.endpoint.listener_name

    @property
    def peer_host(self) -> str:
        return UNKNOWN if self.socket is None else self.socket.peer_address()[0]

    @property
    def peer_port(self) -> int:
        return 0 if self.socket is None else self.socket.peer_address()[1]

    @property
    def local_host(self) -> str:
        """The address that the client dialled."""
        return UNKNOWN if self.socket is None else self.socket.local_address()[0]

    @property
    def local_port(self) -> int:
        return 0 if self.socket is None else self.socket.local_address()[1]
