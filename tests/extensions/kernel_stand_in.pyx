"""The kernel's TLS under C where the system's kernel has none: `_fast/net/socket_calls` with a kernel of the test's.

`kernel.set(fd, level, name, value)` stands for `setsockopt` and gives an error number or 0; `kernel.takes(fd)` says
whether it encrypts what is sent there, and `kernel.send(fd, kind, data)` how much of it was taken, or less than 0 for
an error number.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from posix.types cimport off_t

from kbroker._fast.files.file_write cimport kb_fail
from kbroker._fast.files.system_calls cimport system_calls
from kbroker._fast.net.socket_calls cimport SocketCalls, msghdr, socket_calls

cdef extern from "<sys/socket.h>" nogil:
    struct cmsghdr:
        int cmsg_level
        int cmsg_type
    unsigned char* CMSG_DATA(cmsghdr* header)

cdef enum:
    DATA = 23
    TCP_ULP = 31
    SOL_TLS = 282
    PORTION_BYTES = 65536

cdef SocketCalls real = socket_calls
cdef object kernel = None


cdef ssize_t given(int fd, int kind, bytes data) noexcept with gil:
    cdef ssize_t taken = kernel.send(fd, kind, data)
    if taken >= 0:
        return taken
    kb_fail(<int> -taken)
    return -1


cdef bint takes(int fd) noexcept with gil:
    return kernel is not None and kernel.takes(fd)


cdef int set_option(int fd, int level, int name, const void* value, unsigned int size) noexcept nogil:
    cdef int error = 0
    if level != SOL_TLS and name != TCP_ULP:
        return real.setsockopt(fd, level, name, value, size)
    with gil:
        error = kernel.set(fd, level, name, PyBytes_FromStringAndSize(<const char*> value, size))
    if error:
        kb_fail(error)
        return -1
    return 0


cdef ssize_t send(int fd, const void* data, size_t size, int flags) noexcept nogil:
    if not takes(fd):
        return real.send(fd, data, size, flags)
    with gil:
        return given(fd, DATA, PyBytes_FromStringAndSize(<const char*> data, size))


cdef ssize_t sendmsg(int fd, const msghdr* message, int flags) noexcept nogil:
    cdef size_t index
    if not takes(fd):
        return real.sendmsg(fd, message, flags)
    with gil:
        parts = [
            PyBytes_FromStringAndSize(<const char*> message.msg_iov[index].iov_base, message.msg_iov[index].iov_len)
            for index in range(message.msg_iovlen)
        ]
        kind = DATA if message.msg_control == NULL else CMSG_DATA(<cmsghdr*> message.msg_control)[0]
        return given(fd, kind, b"".join(parts))


cdef ssize_t sendfile(int out_fd, int in_fd, off_t* offset, size_t count) noexcept nogil:
    cdef ssize_t got
    if not takes(out_fd):
        return real.sendfile(out_fd, in_fd, offset, count)
    with gil:
        data = PyBytes_FromStringAndSize(NULL, min(count, <size_t> PORTION_BYTES))
        got = system_calls.pread(in_fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), offset[0])
        if got <= 0:
            return got
        got = given(out_fd, DATA, data[:got])
    if got > 0:
        offset[0] += got
    return got


def stand_in(instead) -> None:
    """From now on that is the kernel's TLS; None: the system's is."""
    global kernel
    kernel = instead
    if instead is None:
        socket_calls.setsockopt, socket_calls.send = real.setsockopt, real.send
        socket_calls.sendmsg, socket_calls.sendfile = real.sendmsg, real.sendfile
    else:
        socket_calls.setsockopt, socket_calls.send = set_option, send
        socket_calls.sendmsg, socket_calls.sendfile = sendmsg, sendfile
