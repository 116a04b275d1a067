"""The socket of a connection, as the rest of the connection needs it; `PlainSocket` is one without encryption.

A listener makes a socket part for each client; it is the asyncio BufferedProtocol that the loop calls.  It hands the
bytes of requests to the connection (`room`, `received`), and sends the bytes of answers as the kernel does: it never
waits, and sends all, a part or nothing (NO_ROOM, or -1 with errno EAGAIN).  When the client is gone it returns -1 with
another errno, or raises OSError.  Nothing is written through asyncio's transport.

A socket part that encrypts accepts bytes before the kernel has taken them.  `held_bytes` is the number of encrypted
bytes that the kernel has not taken yet; `drain` sends them, and is called again when the socket is writable.
"""

from libc.errno cimport EAGAIN, errno
from libc.string cimport memset
from posix.types cimport off_t

from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.send_threads cimport SendThreads
from kbroker._fast.net.socket_calls cimport msghdr, socket_calls

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_MORE
    int MSG_DONTWAIT

cdef enum:
    # Above this a sendfile copies long enough that other threads may run meanwhile.
    RELEASE_GIL_BYTES = 131072

cdef tuple UNKNOWN = ("unknown", 0)


cdef ssize_t send_as_is(int fd, iovec* pieces, int count, bint more) noexcept:
    """As `SocketPart.write` where the kernel takes the bytes as they are."""
    cdef msghdr message
    cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if more else 0)
    if count == 1:
        return socket_calls.send(fd, pieces.iov_base, pieces.iov_len, flags)
    memset(&message, 0, sizeof(message))
    message.msg_iov = pieces
    message.msg_iovlen = count
    return socket_calls.sendmsg(fd, &message, flags)


cdef ssize_t send_file(int out_fd, FileRegion region, off_t position, size_t size) except? -3:
    """As `SocketPart.write_region` there."""
    cdef int fd = region.fd
    cdef ssize_t sent
    if size < RELEASE_GIL_BYTES:
        return socket_calls.sendfile(out_fd, fd, &position, size)
    with nogil:
        sent = socket_calls.sendfile(out_fd, fd, &position, size)
    return sent


cdef class SocketPart:
    """See the module.

    `fd`: the transport's socket, open until the connection is lost, to wait for room in.  `lends`: whether `lend` may
    have a thread send what `write_region` would.
    """

    def __cinit__(self, *arguments):
        self.fd = -1

    def __init__(self, ConnectionInterface connection not None):
        self.connection = connection

    # What the loop calls

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()
        self.connection.opened(self)

    def get_buffer(self, sizehint):
        return self.connection.room()

    def buffer_updated(self, Py_ssize_t nbytes) -> None:
        self.connection.received(nbytes)

    def eof_received(self) -> bool:
        return self.connection.end_of_requests()

    def connection_lost(self, error) -> None:
        cdef ConnectionInterface connection = self.connection
        self.connection = None
        self.transport = None
        if connection is not None:
            connection.lost(error)

    # For the connection

    cdef ssize_t look(self, char* data, size_t size) except? -3:
        """How many bytes have come, taken without the loop; 0 for none; -1 where only the loop can tell."""
        return -1

    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3:
        """How much of the pieces was taken.  `more`: more follows at once, so that a short packet can wait for it."""
        raise NotImplementedError

    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3:
        """The same with a range of the region's file, of which the pages are in memory.

        0 when the file ends before it; EIO when the disk fails.
        """
        raise NotImplementedError

    cdef bint lend(self, SendThreads threads, FileRegion region, off_t position, size_t size) except -1:
        """Whether a thread does what `write_region` would; the connection is `helped` when it has."""
        return False

    cdef bint drain(self) except -1:
        """Whether all that was taken is with the kernel now; False: when there is room in the socket, again."""
        return True

    cdef int pause_reading(self) except -1:
        """Let the client's bytes wait: `room` and `received` are not called until the turn after `resume_reading`."""
        if self.transport is not None:
            self.transport.pause_reading()
        return 0

    cdef int resume_reading(self) except -1:
        if self.transport is not None:
            self.transport.resume_reading()
        return 0

    cdef int close(self) except -1:
        """Close at once; `lost` follows."""
        if self.transport is not None:
            self.transport.abort()
        return 0

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the client has shown, in DER; None without."""
        return None

    @property
    def raw(self):
        """The transport's own socket, to set options on."""
        return self.transport.get_extra_info("socket")

    cdef tuple peer_address(self):
        if self.peer is None and self.transport is not None:
            self.peer = self.transport.get_extra_info("peername")
        return self.peer or UNKNOWN

    cdef tuple local_address(self):
        """The address that the client dialled."""
        if self.local is None and self.transport is not None:
            self.local = self.transport.get_extra_info("sockname")
        return self.local or UNKNOWN


cdef class PlainSocket(SocketPart):
    """Bytes as they are: `sendmsg`, and `sendfile` from the page cache to the socket."""

    def __cinit__(self, *arguments):
        self.lends = True

    cdef ssize_t look(self, char* data, size_t size) except? -3:
        cdef ssize_t got = socket_calls.recv(self.fd, data, size, MSG_DONTWAIT)
        if got > 0:
            return got
        return 0 if got < 0 and errno == EAGAIN else -1

    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3:
        return send_as_is(self.fd, pieces, count, more)

    cdef bint lend(self, SendThreads threads, FileRegion region, off_t position, size_t size) except -1:
        return size >= threads.least_bytes and threads.take(
            self.connection, self.fd, region, position, size, NULL, NULL)

    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3:
        return send_file(self.fd, region, position, size)


cdef class PairedSocket(PlainSocket):
    """One end of a pair of sockets within the process, whose client is at the address `peer`, a host and a port."""

    def __init__(self, ConnectionInterface connection not None, tuple peer not None):
        PlainSocket.__init__(self, connection)
        self.peer = peer
        self.local = ("127.0.0.1", 0)
