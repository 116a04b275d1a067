from posix.types cimport off_t

from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.send_threads cimport SendThreads

cdef enum:
    NO_ROOM = -2


cdef ssize_t send_as_is(int fd, iovec* pieces, int count, bint more) noexcept
cdef ssize_t send_file(int out_fd, FileRegion region, off_t position, size_t size) except? -3


cdef class SocketPart:
    cdef ConnectionInterface connection
    cdef object transport
    cdef readonly int fd
    cdef readonly bint lends
    cdef readonly Py_ssize_t held_bytes
    cdef tuple peer
    cdef tuple local

    cdef ssize_t look(self, char* data, size_t size) except? -3
    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3
    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3
    cdef bint lend(self, SendThreads threads, FileRegion region, off_t position, size_t size) except -1
    cdef bint drain(self) except -1
    cdef int pause_reading(self) except -1
    cdef int resume_reading(self) except -1
    cdef int close(self) except -1
    cdef tuple peer_address(self)
    cdef tuple local_address(self)


cdef class PlainSocket(SocketPart):
    pass
