cdef class Gate:
    cdef readonly object view
    cdef readonly bint allows_direct


cdef class Gatekeeper:
    cdef readonly long generation
