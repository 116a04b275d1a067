from libc.stdint cimport uint64_t

from kbroker._fast.net.answer_queue cimport AnswerQueue
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport RequestState
from kbroker._fast.net.frame_reader cimport FrameReader
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.net.request_context cimport RequestContext
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.socket_part cimport SocketPart


cdef class RequestServer:
    cdef ConnectionInterface connection
    cdef Endpoint endpoint
    cdef SocketPart socket
    cdef FrameReader frames
    cdef AnswerQueue answers
    cdef RequestContext pending
    cdef RequestState state
    # When a request that is begun again (AGAIN) was first begun.
    cdef uint64_t began_ns
    cdef bint has_session
    cdef bint is_trusted
    cdef bint takes_tokens
    cdef Gate gate
    cdef object gate_client_id
    cdef long gate_generation
    cdef bytes client_id_bytes
    cdef str client_id_text
    cdef unsigned long request_count
    cdef unsigned long long bytes_in
    cdef unsigned long long bytes_out
    cdef tuple introduction
    # What the connection is closed for as soon as its answers are with the kernel, or None: the reason, a detail, and
    # what tells it from others with that reason, in the log.
    # What is no frame stays in the buffer instead, and comes again.
    cdef tuple refusal
    cdef int asked

    cdef int serve(self, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int finish(self, object frame) except -1
    cdef bint conclude(self, RequestContext ctx, object response, bint encoded) except -1
    cdef int malformed(self, RequestContext ctx, object error) except -1
    cdef int refuse(self, tuple why) except -1
    cdef int abandon(self) except -1
    cdef int change_session(self, object session) except -1
    cdef int mute(self) except -1
    cdef int unmute(self) except -1
    cdef bint _enter(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef bint _refuse_unauthenticated(self, RequestContext ctx) except -1
    cdef bint _recall(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _run(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef bint _defer(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _wait(self, RequestContext ctx, Pending answer) except -1
    cdef int _wait_for(self, RequestContext ctx, object coroutine) except -1
    cdef int _await(self, RequestContext ctx) except -1
    cdef int _unsupported(self, RequestContext ctx) except -1
    cdef int _answer(self, RequestContext ctx, object response) except -1
    cdef int _queue(self, RequestContext ctx, object frame) except -1
    cdef int _answered(self, RequestContext ctx, Py_ssize_t bytes_out) except -1
    cdef int _mute(self, int throttle_ms) except -1
    cdef int _next(self, RequestState then) except -1
    cdef str _client_id(self, const char* data, Py_ssize_t size)
