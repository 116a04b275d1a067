from libc.stdint cimport uint8_t


cdef enum:
    DIGEST_BYTES = 16


cdef struct Message:
    const uint8_t* data
    Py_ssize_t size


cdef void md5_digest(const uint8_t* data, Py_ssize_t size, uint8_t* digest) noexcept nogil
cdef void md5_digests(const Message* messages, Py_ssize_t count, uint8_t* digests) noexcept nogil
