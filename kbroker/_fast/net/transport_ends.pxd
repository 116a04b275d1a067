cdef class TransportEnds:
    cdef object transport
    cdef tuple peer
    cdef tuple local
    cdef bytes client_id_bytes
    cdef str client_id_text

    cdef tuple _peer(self)
    cdef tuple _local(self)
    cdef str _client_id(self, const char* data, Py_ssize_t size)
