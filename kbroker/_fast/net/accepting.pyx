"""Taking connections off the kernel's queue of a listening socket, many in one call.

A client that connects while that queue is full gets no answer, and tries again after a second, then after two more.
"""

from libc.errno cimport ECONNABORTED, EINTR, errno

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    """

cdef extern from "<sys/socket.h>" nogil:
    int accept4(int fd, void* address, void* address_size, int flags)
    int SOCK_NONBLOCK, SOCK_CLOEXEC


def accept_all(int listening, Py_ssize_t most):
    """Accepts what waits, at most so many connections, without blocking: their descriptors.

    These are non-blocking and not inherited.  Another end than an empty queue, such as too many open files, is
    met by the next one to accept as well.
    """
    cdef list found = []
    cdef int fd
    while len(found) < most:
        fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            found.append(fd)
        elif errno != EINTR and errno != ECONNABORTED:
            break
    return found
