"""A socket part that speaks TLS through Python's memory BIOs: what a connection does not know of its socket.

Small and slow.  What the client sent is decrypted into the connection's room, what is sent is encrypted in portions and
kept (`held`) where the socket does not take it; a range of a file is read and encrypted, as no thread could send it.
"""

import asyncio
import ssl

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, errno
from posix.types cimport off_t

from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.socket_part cimport NO_ROOM, SocketPart

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, off_t position)

cdef enum:
    PORTION_BYTES = 65536


cdef class EncryptingSocket(SocketPart):
    cdef object incoming
    cdef object outgoing
    cdef object tls
    cdef object loop
    cdef bytearray received
    cdef bytes held
    cdef bint shaken
    cdef bint paused

    def __init__(self, ConnectionInterface connection not None, context):
        SocketPart.__init__(self, connection)
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.received = bytearray(PORTION_BYTES)
        self.held = b""

    def connection_made(self, transport) -> None:
        self.loop = asyncio.get_running_loop()
        SocketPart.connection_made(self, transport)

    def get_buffer(self, sizehint):
        return self.received

    def buffer_updated(self, Py_ssize_t nbytes) -> None:
        self.incoming.write(memoryview(self.received)[:nbytes])
        self.feed()

    def feed(self) -> None:
        """Give what can be decrypted to the connection, as long as that reads."""
        cdef ConnectionInterface connection = self.connection
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            while not self.paused and self.connection is not None and not self._read():
                pass
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if connection is not None:
                (<object> connection).close(f"lost: {error}")
            return
        self._encrypted()
        if self.held_bytes > 0 and not self.drain() and not self.shaken:
            (<object> connection).close("lost: no room for a handshake")

    cdef bint _read(self) except -1:
        """Whether that was the end."""
        cdef Py_ssize_t got = 0
        try:
            with memoryview(self.connection.room()) as room:
                got = self.tls.read(len(room), room)
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLWantReadError:
            self.connection.received(0)
            raise
        if got == 0:
            self.connection.end_of_requests()
            return True
        self.connection.received(got)
        return False

    cdef int _encrypted(self) except -1:
        self.held += self.outgoing.read()
        self.held_bytes = PyBytes_GET_SIZE(self.held)
        return 0

    cdef bint drain(self) except -1:
        cdef ssize_t sent
        while self.held_bytes > 0:
            sent = send(self.fd, PyBytes_AS_STRING(self.held), self.held_bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0:
                if errno == EAGAIN:
                    return False
                raise OSError(errno, "send failed")
            self.held = self.held[sent:]
            self.held_bytes -= sent
        return True

    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3:
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t size
        cdef int index
        if not self.drain():
            return NO_ROOM
        for index in range(count):
            size = min(<Py_ssize_t> pieces[index].iov_len, PORTION_BYTES - taken)
            if size > 0:
                self.tls.write(PyMemoryView_FromMemory(<char*> pieces[index].iov_base, size, PyBUF_READ))
            taken += size
            if size < <Py_ssize_t> pieces[index].iov_len:
                break
        self._encrypted()
        self.drain()
        return taken

    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3:
        cdef bytes data
        cdef ssize_t got
        if not self.drain():
            return NO_ROOM
        data = PyBytes_FromStringAndSize(NULL, PORTION_BYTES)
        got = pread(region.fd, PyBytes_AS_STRING(data), min(size, <size_t> PORTION_BYTES), position)
        if got > 0:
            self.tls.write(data[:got])
            self._encrypted()
            self.drain()
        return got

    cdef int pause_reading(self) except -1:
        self.paused = True
        return SocketPart.pause_reading(self)

    cdef int resume_reading(self) except -1:
        SocketPart.resume_reading(self)
        self.paused = False
        self.loop.call_soon(self.feed)
        return 0

    @property
    def certificate(self) -> bytes | None:
        return self.tls.getpeercert(True)
