"""See `system_calls.pxd`."""

from posix.types cimport off_t

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void* buffer, size_t size, int64_t offset) noexcept
    ssize_t c_pwrite "pwrite"(int fd, const void* buffer, size_t size, int64_t offset) noexcept

cdef extern from "<sys/uio.h>" nogil:
    ssize_t c_preadv2 "preadv2"(int fd, const iovec* vector, int count, int64_t offset, int flags) noexcept
    ssize_t c_pwritev "pwritev"(int fd, const iovec* vector, int count, int64_t offset) noexcept

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t c_sendfile "sendfile"(int out_fd, int in_fd, off_t* offset, size_t count) noexcept

system_calls.pread = c_pread
system_calls.preadv2 = c_preadv2
system_calls.pwrite = c_pwrite
system_calls.pwritev = c_pwritev
system_calls.sendfile = c_sendfile
