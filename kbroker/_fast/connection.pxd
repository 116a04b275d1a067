from libc.stdint cimport uint64_t

from kbroker._fast.responder cimport Responder
from kbroker._fast.route cimport Route


cdef class RequestContext:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly Connection connection
    cdef readonly object services
    cdef public object abandoned
    cdef public bint lasting
    cdef tuple key
    cdef Route route
    cdef uint64_t started_ns
    cdef Py_ssize_t bytes_in


cdef class Connection(Responder):
    cdef RequestContext pending
    cdef bint processing
    cdef readonly bint ended
    cdef bint put_off
    cdef bint by_itself
    cdef object __weakref__

    cdef int _dispatch(self, Py_ssize_t position, Py_ssize_t end) except -1
    cdef bint _recall(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _run(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _answer(self, RequestContext ctx, object response) except -1
    cdef int _queue(self, RequestContext ctx, object frame) except -1
    cdef int _answered(self, RequestContext ctx, Py_ssize_t bytes_out) except -1
    cdef bint _put_off(self, RequestContext ctx, Py_ssize_t position, Py_ssize_t end) except -1
    cdef int _abandon(self) except -1
    cdef int _fail(self, str reason, str detail) except -1
