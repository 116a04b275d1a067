from libc.stdint cimport int32_t

from kbroker._fast.structs cimport Plan


cdef bytes encode_body(Plan plan, object struct, bytes prefix)
cdef list encode_parts(Plan plan, object struct, bytes prefix)
cdef object encode_frame(Plan plan, object struct, int32_t correlation_id, bint flexible_header)
