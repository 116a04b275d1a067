"""Tells which pages of a file are in the page cache, and brings in the missing ones without a copy in this process.

A range is brought in by `sendfile` to /dev/null, which waits until the kernel has each page and passes on nothing but
references.  Reading the range into a buffer costs ten times as much: the copy, and memory for it, which a virtual
machine may first have to reclaim from its host.  For `sendfile` the kernel reads ahead as for any sequential reader, in
larger and larger pieces of contiguous memory; `posix_fadvise(WILLNEED)` would fetch single pages.
"""

from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from posix.types cimport off_t

from kbroker._fast.files.system_calls cimport RWF_NOWAIT, iovec, system_calls

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    """

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t position)
    int munmap(void* address, size_t size)
    int mincore(void* address, size_t size, unsigned char* residency)
    int PROT_READ, MAP_SHARED
    void* MAP_FAILED

cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    int _SC_PAGESIZE

cdef enum:
    # How far apart pages are probed: the kernel reads ahead in steps of at least this size.
    PROBE_BYTES = 131072

cdef off_t page_bytes = sysconf(_SC_PAGESIZE)


cdef bint is_resident(int fd, off_t position, size_t size) noexcept nogil:
    """Whether the kernel has the pages probed: one in PROBE_BYTES, and the last.  True where it cannot tell.

    Reads a byte of each, which costs least.  What is not there the kernel begins to read.
    """
    cdef char byte
    cdef iovec vector
    cdef off_t end = position + <off_t> size
    vector.iov_base = &byte
    vector.iov_len = 1
    while position < end:
        if system_calls.preadv2(fd, &vector, 1, position, RWF_NOWAIT) < 0 and errno == EAGAIN:
            return False
        position += PROBE_BYTES
    return system_calls.preadv2(fd, &vector, 1, end - 1, RWF_NOWAIT) >= 0 or errno != EAGAIN


cdef bint was_read(int fd, off_t position, size_t size) noexcept nogil:
    """As `is_resident`, for what a thread is likely to have brought in a moment ago.  False where it cannot tell.

    Asks a mapping that is never touched.  A byte of a page that no processor has touched since the disk wrote it costs
    a virtual machine ten times as much as one of another page; what is not there stays the thread's affair.
    """
    cdef unsigned char residency = 1
    cdef char* address
    cdef off_t begin = position // page_bytes * page_bytes
    cdef off_t last = (position + <off_t> size - 1) // page_bytes * page_bytes
    cdef off_t at = begin
    address = <char*> mmap(NULL, <size_t> (last + page_bytes - begin), PROT_READ, MAP_SHARED, fd, begin)
    if address == MAP_FAILED:
        return False
    while residency & 1:
        if mincore(address + (at - begin), 1, &residency) != 0:
            residency = 0
        if at == last:
            break
        at = min(at + PROBE_BYTES, last)
    munmap(address, <size_t> (last + page_bytes - begin))
    return residency & 1


def bring_in(int fd, off_t position, int64_t size, int sink):
    """Has the kernel read `size` bytes from `position` on, and waits for them.  `sink`: /dev/null, open for writing.

    Returns how many bytes there were: fewer than `size` at the end of the file.  OSError.
    """
    cdef off_t at = position
    cdef off_t end = position + size
    cdef ssize_t got = 1
    with nogil:
        while at < end and got != 0:
            got = system_calls.sendfile(sink, fd, &at, <size_t> (end - at))
            if got < 0 and errno != EINTR:
                break
    if got < 0:
        PyErr_SetFromErrno(OSError)
    return at - position
