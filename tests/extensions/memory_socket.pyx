"""A socket part over an end of a connection in memory (`tests/simulation/sockets.py`), which is its transport.

What is sent goes to `transport.take`: how much of it was taken, NO_ROOM (-2); `transport.look` gives what has come.
A range of a file is read, as there is no kernel to send it.  With all that a simulated connection is served by the same
code as one of TCP, but for `PlainSocket` itself and the threads that send.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EPIPE
from libc.string cimport memcpy
from posix.types cimport off_t

from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.socket_part cimport SocketPart

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, off_t position)

cdef enum:
    PORTION_BYTES = 65536


cdef class MemorySocket(SocketPart):
    """A listener makes one for each connection, in place of a `PlainSocket`."""

    cdef ssize_t look(self, char* data, size_t size) except? -3:
        cdef bytes got
        if self.transport is None:
            return -1
        got = self.transport.look(size)
        if got is None:
            return -1
        memcpy(data, PyBytes_AS_STRING(got), PyBytes_GET_SIZE(got))
        return PyBytes_GET_SIZE(got)

    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3:
        cdef list parts = []
        cdef int index
        for index in range(count):
            parts.append(PyBytes_FromStringAndSize(<char*> pieces[index].iov_base, pieces[index].iov_len))
        return self._take(b"".join(parts))

    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3:
        cdef bytes data = PyBytes_FromStringAndSize(NULL, min(size, <size_t> PORTION_BYTES))
        cdef ssize_t got = pread(region.fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), position)
        if got <= 0:
            return got
        return self._take(data[:got])

    cdef ssize_t _take(self, bytes data) except? -3:
        if self.transport is None:
            raise OSError(EPIPE, "the connection is gone")
        return self.transport.take(data)
