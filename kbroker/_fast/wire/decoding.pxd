from kbroker._fast.wire.decoder cimport Decoder
from kbroker._fast.wire.structs cimport Plan


cdef class Decoding:
    cdef Decoder decoder
    cdef Py_buffer view
    cdef bint holds
    cdef object source
    cdef object struct
    cdef Plan plan

    cdef int release(self) except -1
