"""A network in memory under C: `_fast/net/socket_calls` as the network of a history answers them.

Each connection is a descriptor of its own, which may be duplicated: its inode says which end it is (an `End` of
`tests/simulation/sockets.py`).  `end.take` says how much of what is sent was taken, NO_ROOM (-2), `end.takes` how much
would be; `end.look` gives what has come.  So connections are served by the same code as those of TCP, `PlainSocket` and
what sends beside the loop included.  What the network costs is not the broker's (`cost_meter`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EPIPE, errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from posix.types cimport off_t

from kbroker._fast.files.file_write cimport kb_fail
from kbroker._fast.files.system_calls cimport system_calls
from kbroker._fast.net.socket_calls cimport SocketCalls, msghdr, socket_calls
from tests.extensions.cost_meter cimport enter_broker, leave_broker

cdef extern from "<sys/stat.h>" nogil:
    struct stat:
        unsigned long st_ino
    int fstat(int fd, stat* found)

cdef enum:
    NO_ROOM = -2
    PORTION_BYTES = 65536

cdef SocketCalls real = socket_calls
cdef dict ends = {}


cdef object end_of(int fd):
    """None where no connection has this descriptor any more."""
    cdef stat found
    if fstat(fd, &found) != 0:
        return None
    return ends.get(found.st_ino)


cdef ssize_t taken(int fd, bytes data, int* error):
    """How much of it is on its way; -1 with the error."""
    cdef object end = end_of(fd)
    cdef ssize_t size
    if end is None:
        error[0] = EPIPE
        return -1
    try:
        size = end.take(data)
    except OSError as gone:
        error[0] = gone.errno
        return -1
    if size == NO_ROOM:
        error[0] = EAGAIN
        return -1
    return size


cdef ssize_t simulated_send(int fd, const void* data, size_t size, int flags) noexcept nogil:
    cdef int error = 0
    cdef ssize_t sent
    leave_broker()
    with gil:
        sent = taken(fd, PyBytes_FromStringAndSize(<const char*> data, size), &error)
    enter_broker()
    if error:
        kb_fail(error)
    return sent


cdef ssize_t simulated_sendmsg(int fd, const msghdr* message, int flags) noexcept nogil:
    cdef int error = 0
    cdef ssize_t sent
    cdef size_t index
    leave_broker()
    with gil:
        parts = []
        for index in range(message.msg_iovlen):
            parts.append(PyBytes_FromStringAndSize(<const char*> message.msg_iov[index].iov_base,
                                                   message.msg_iov[index].iov_len))
        sent = taken(fd, b"".join(parts), &error)
    enter_broker()
    if error:
        kb_fail(error)
    return sent


cdef ssize_t portion(int out_fd, int in_fd, int64_t offset, size_t count, int* error):
    """Sends a part of a file: what the other end takes is read, and no more; -1 with the error."""
    cdef object end = end_of(out_fd)
    cdef ssize_t size
    cdef bytes data
    if end is None:
        error[0] = EPIPE
        return -1
    try:
        size = end.takes(min(count, <size_t> PORTION_BYTES))
    except OSError as gone:
        error[0] = gone.errno
        return -1
    if size == NO_ROOM:
        error[0] = EAGAIN
        return -1
    data = PyBytes_FromStringAndSize(NULL, size)
    size = system_calls.pread(in_fd, PyBytes_AS_STRING(data), size, offset)
    if size < 0:
        error[0] = errno
    elif size > 0:
        end.put(data[:size])
    return size


cdef ssize_t simulated_sendfile(int out_fd, int in_fd, off_t* offset, size_t count) noexcept nogil:
    cdef int error = 0
    cdef ssize_t sent
    leave_broker()
    with gil:
        sent = portion(out_fd, in_fd, offset[0], count, &error)
        if sent > 0:
            offset[0] += sent
    enter_broker()
    if error:
        kb_fail(error)
    return sent


cdef ssize_t simulated_recv(int fd, void* buffer, size_t size, int flags) noexcept nogil:
    cdef int error = 0
    cdef ssize_t got = 0
    leave_broker()
    with gil:
        end = end_of(fd)
        data = None if end is None else end.look(size)
        if data is not None and not data:
            error = EAGAIN
            got = -1
        elif data is not None:
            got = PyBytes_GET_SIZE(data)
            memcpy(buffer, PyBytes_AS_STRING(data), got)
    enter_broker()
    if error:
        kb_fail(error)
    return got


def simulate_sockets(dict by_inode):
    """From now on descriptors with these inodes are those ends; None: sockets are the system's again."""
    global ends
    ends = {} if by_inode is None else by_inode
    if by_inode is None:
        socket_calls.recv, socket_calls.send = real.recv, real.send
        socket_calls.sendmsg, socket_calls.sendfile = real.sendmsg, real.sendfile
    else:
        socket_calls.recv, socket_calls.send = simulated_recv, simulated_send
        socket_calls.sendmsg, socket_calls.sendfile = simulated_sendmsg, simulated_sendfile
