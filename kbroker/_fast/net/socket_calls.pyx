"""See `socket_calls.pxd`."""

from posix.types cimport off_t

from kbroker._fast.net.socket_calls cimport msghdr

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* buffer, size_t size, int flags) noexcept
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags) noexcept
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr* message, int flags) noexcept
    int c_setsockopt "setsockopt"(int fd, int level, int name, const void* value, unsigned int size) noexcept

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t c_sendfile "sendfile"(int out_fd, int in_fd, off_t* offset, size_t count) noexcept

socket_calls.recv = c_recv
socket_calls.send = c_send
socket_calls.sendmsg = c_sendmsg
socket_calls.sendfile = c_sendfile
socket_calls.setsockopt = c_setsockopt
