"""The system's calls by which C receives and sends on sockets, in one place, where a test can put its own network."""

from posix.types cimport off_t

from kbroker._fast.files.system_calls cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void* msg_name
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen

cdef struct SocketCalls:
    ssize_t (*recv)(int fd, void* buffer, size_t size, int flags) noexcept nogil
    ssize_t (*send)(int fd, const void* data, size_t size, int flags) noexcept nogil
    ssize_t (*sendmsg)(int fd, const msghdr* message, int flags) noexcept nogil
    ssize_t (*sendfile)(int out_fd, int in_fd, off_t* offset, size_t count) noexcept nogil
    int (*setsockopt)(int fd, int level, int name, const void* value, unsigned int size) noexcept nogil

cdef SocketCalls socket_calls
