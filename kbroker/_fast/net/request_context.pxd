from libc.stdint cimport uint64_t

from kbroker._fast.net.responder cimport Responder
from kbroker._fast.net.route cimport Route


cdef class RequestContext:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly Responder connection
    cdef readonly object services
    cdef public object waiting
    cdef public bint lasting
    cdef tuple key
    cdef Route route
    cdef uint64_t started_ns
    cdef Py_ssize_t bytes_in
