from kbroker._fast.tls.tls_shared cimport StreamSocket
from kbroker._fast.tls.tls_stream cimport Bytes


cdef class TlsSocket(StreamSocket):
    cdef object listener
    cdef Bytes arrived
    cdef object timer
    cdef object shown
    cdef Py_ssize_t handshake_bytes
    cdef bint paused
    cdef bint held_back
    cdef bint reading
    cdef bint more
    cdef bint at_end
    cdef bint requests_ended
    cdef bint closed
    cdef bint keeps_keys

    cdef bint _is_blocked(self) noexcept
    cdef int _set_reading(self) except -1
    cdef int _shake(self) except -1
    cdef int _have_back(self) except -1
    cdef int _after_handshake(self) except -1
    cdef int _refuse(self, str kind, str detail) except -1
    cdef int _feed(self) except -1
    cdef int _put_back(self) except -1
    cdef int _end(self) except -1
    cdef int _end_requests(self) except -1
