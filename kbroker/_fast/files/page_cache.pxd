from posix.types cimport off_t


cdef bint is_resident(int fd, off_t position, size_t size) noexcept nogil
cdef bint was_read(int fd, off_t position, size_t size) noexcept nogil
