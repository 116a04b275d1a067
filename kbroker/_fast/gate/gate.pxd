cdef class Gate:
    cdef readonly object view
    cdef readonly bint allows_direct
    cdef Gatekeeper judge
    cdef set readable           # names of topics that the client may read, as far as it has asked
    cdef set writable
    cdef long generation        # of the judge, when these were learnt

    cdef bint may_read(self, object name) except -1
    cdef bint may_write(self, object name) except -1
    cdef bint may_replicate(self) except -1
    cdef bint _learn(self, set allowed, int operation, object name) except -1
    cdef int _forget(self) except -1


cdef class Gatekeeper:
    cdef readonly long generation
