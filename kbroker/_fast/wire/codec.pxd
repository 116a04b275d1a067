from kbroker._fast.wire.structs cimport Plan


cdef class Program:
    cdef Plan plan
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly type struct_class
