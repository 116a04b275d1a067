from libc.stdint cimport uint64_t
from posix.types cimport off_t

from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.answer_timer cimport AnswerTimer
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport SendState
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.socket_part cimport SocketPart


cdef class AnswerQueue:
    cdef SocketPart socket
    cdef ConnectionInterface connection
    cdef Endpoint endpoint
    cdef SendState state
    cdef int writer_fd
    cdef list parts
    cdef AnswerTimer times
    cdef Py_ssize_t head
    cdef Py_ssize_t offset
    cdef Py_ssize_t queued_bytes
    cdef FileRegion cold_region
    cdef off_t cold_position
    cdef Py_ssize_t cold_bytes
    cdef off_t warm_from
    cdef int catching_up
    cdef off_t warm_until
    cdef bint keep

    cdef void add(self, object part)
    cdef int add_frame(self, list frame) except -1
    cdef int answered(self, int api_key, bint by_follower, uint64_t total_ns, uint64_t now) except -1
    cdef int flush(self, uint64_t now) except -1
    cdef int hold(self) except -1
    cdef int close(self) except -1
    cdef int drop(self) except -1
    cdef int helped(self, Py_ssize_t sent) except -1
    cdef int _check(self) except -1
    cdef void _clear(self)
    cdef int _send(self, bint may_lend, Py_ssize_t most) except -1
    cdef list _cold_ranges(self)
    cdef ssize_t _send_bytes(self) except? -3
    cdef ssize_t _send_region(self, FileRegion region, bint may_lend) except? -3
    cdef void _advance(self, Py_ssize_t sent)
    cdef int _next(self, SendState then) except -1
    cdef int _unwatch(self) except -1
