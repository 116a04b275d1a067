from libc.stdint cimport int32_t, int64_t

from kbroker._fast.wire.encoder cimport Encoder
from kbroker._fast.wire.structs cimport Plan


cdef class Encoding:
    cdef Encoder encoder
    cdef Plan plan
    cdef object struct
    cdef list cuts
    cdef list parts
    cdef int64_t bytes_cut

    cdef int cut_off(self) except -1


cdef bytes encode_body(Plan plan, object struct, bytes prefix)
cdef list encode_parts(Plan plan, object struct, bytes prefix)
cdef object encode_frame(Plan plan, object struct, int32_t correlation_id, bint flexible_header, Py_ssize_t items)
