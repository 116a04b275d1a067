from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport ReadState
from kbroker._fast.net.receive_buffer cimport BufferPool, ReceiveBuffer
from kbroker._fast.net.socket_part cimport SocketPart


cdef class FrameReader:
    cdef BufferPool pool
    cdef SocketPart socket
    cdef ConnectionInterface connection
    cdef ReadState state
    cdef ReceiveBuffer buffer
    cdef Py_ssize_t start
    cdef Py_ssize_t filled
    cdef char* stash
    cdef Py_ssize_t stash_bytes
    cdef Py_ssize_t wanted_bytes

    cdef FrameReader room(self)
    cdef ssize_t look(self) except? -3
    cdef int take_up(self) except -1
    cdef Py_ssize_t next_frame(self, Py_ssize_t* size) noexcept
    cdef bytes beginning(self)
    cdef bint has_rest(self) noexcept
    cdef int settle(self, bint waiting) except -1
    cdef int close(self) except -1
    cdef int _stash(self, Py_ssize_t leftover) except -1
    cdef void _unstash(self)
    cdef int _give_back(self) except -1
    cdef int _grow(self, Py_ssize_t need, Py_ssize_t leftover) except -1
    cdef int _replace(self, Py_ssize_t need, Py_ssize_t leftover) except -1
    cdef int _pause(self) except -1
    cdef int _resume(self) except -1
    cdef int _check(self) except -1
    cdef int _next(self, ReadState then) except -1
