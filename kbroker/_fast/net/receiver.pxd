from kbroker._fast.net.receive_buffer cimport BufferPool, ReceiveBuffer
from kbroker._fast.net.transport_ends cimport TransportEnds


cdef class Receiver(TransportEnds):
    cdef BufferPool pool
    cdef readonly bint closed
    cdef ReceiveBuffer buffer
    cdef Py_ssize_t start
    cdef Py_ssize_t filled
    cdef char* stash
    cdef Py_ssize_t stash_bytes
    cdef Py_ssize_t wanted_bytes
    cdef bint reading_paused
    cdef int fd

    cdef int finish(self, object frame) except -1
    cdef int give_up(self, object error) except -1
    cdef int received(self, Py_ssize_t size) except -1
    cdef ssize_t look(self) except -2
    cdef int _settle(self, bint waiting) except -1
    cdef int _stash(self, Py_ssize_t leftover) except -1
    cdef void _unstash(self)
    cdef int _give_back(self) except -1
    cdef int _grow(self, Py_ssize_t need, Py_ssize_t leftover) except -1
    cdef int _replace(self, Py_ssize_t need, Py_ssize_t leftover) except -1
    cdef int _pause_reading(self) except -1
    cdef int _resume_reading(self) except -1
