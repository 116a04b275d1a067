from kbroker._fast.net.connection_states cimport RequestState
from kbroker._fast.net.gate cimport Gate
from kbroker._fast.net.pending cimport Pending
from kbroker._fast.net.request_context cimport RequestContext
from kbroker._fast.net.responder cimport Responder


cdef class Connection(Responder):
    cdef RequestContext pending
    cdef bint processing
    cdef readonly bint ended
    cdef bint by_itself
    cdef RequestState state
    cdef Gate gate
    cdef object gate_client_id
    cdef long gate_generation
    cdef public object session
    cdef object __weakref__

    cdef int _dispatch(self, Py_ssize_t position, Py_ssize_t end) except -1
    cdef bint _enter(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef bint _recall(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _run(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _next(self, RequestState then) except -1
    cdef int _mute(self, int throttle_ms) except -1
    cdef int _wait_for(self, RequestContext ctx, object coroutine) except -1
    cdef int _answer(self, RequestContext ctx, object response) except -1
    cdef int _queue(self, RequestContext ctx, object frame) except -1
    cdef int _answered(self, RequestContext ctx, Py_ssize_t bytes_out) except -1
    cdef int _wait(self, RequestContext ctx, Pending answer) except -1
    cdef bint _defer(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _abandon(self, bint closed) except -1
    cdef int _fail(self, str reason, str detail, object kind) except -1
