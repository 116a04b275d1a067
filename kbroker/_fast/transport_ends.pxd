cdef class TransportEnds:
    cdef object transport
    cdef tuple peer
    cdef tuple local

    cdef tuple _peer(self)
    cdef tuple _local(self)
