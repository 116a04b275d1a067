"""The table-driven codec's surface: structs, programs, errors.

A `Program` is one message in one version, ready to run; `kbroker.protocol.messages` compiles them from the tables in
`kbroker.schemas`.  Decoding and encoding themselves live in `decoder.pyx` and `encoder.pyx`.
"""

from libc.stdint cimport int32_t

from kbroker._fast.wire.decoder cimport decode
from kbroker._fast.wire.decoding cimport Decoding
from kbroker._fast.wire.encoding cimport encode_body, encode_frame, encode_parts
from kbroker._fast.wire.structs cimport (
    KIND_ARRAY, KIND_BOOL, KIND_BYTES, KIND_FLOAT64, KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_RECORDS,
    KIND_STRING, KIND_STRUCT, KIND_UINT16, KIND_UINT32, KIND_UUID, Plan,
)

# The names that Python code knows this module by.
from kbroker._fast.wire.decoder import DecodeError  # no-cython-lint
from kbroker._fast.wire.encoder import EncodeError  # no-cython-lint
from kbroker._fast.wire.structs import Struct, make_struct  # no-cython-lint

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

KINDS = {
    "bool": KIND_BOOL,
    "int8": KIND_INT8,
    "int16": KIND_INT16,
    "uint16": KIND_UINT16,
    "int32": KIND_INT32,
    "uint32": KIND_UINT32,
    "int64": KIND_INT64,
    "float64": KIND_FLOAT64,
    "uuid": KIND_UUID,
    "string": KIND_STRING,
    "bytes": KIND_BYTES,
    "records": KIND_RECORDS,
    "struct": KIND_STRUCT,
    "array": KIND_ARRAY,
}


cdef class Program:
    """One message in one version."""

    def __init__(self, Plan plan, int version):
        self.plan = plan
        self.version = version
        self.flexible = plan.flexible
        self.struct_class = plan.struct_class

    def decode(self, object buffer, Py_ssize_t pos=0, object end=None):
        """The struct that starts at `pos`; bytes after it are ignored."""
        cdef Py_ssize_t next_position
        return decode(self.plan, buffer, pos, end, &next_position)

    def decode_from(self, object buffer, Py_ssize_t pos=0, object end=None):
        """The struct that starts at `pos`, and the position after it."""
        cdef Py_ssize_t next_position = 0
        struct = decode(self.plan, buffer, pos, end, &next_position)
        return struct, next_position

    def encode(self, object struct, bytes prefix=b""):
        """The body alone, after `prefix`."""
        return encode_body(self.plan, struct, prefix)

    def encode_parts(self, object struct, bytes prefix=b""):
        """A frame (length, `prefix`, body) as a list in which each records field is the buffer of the struct itself."""
        return encode_parts(self.plan, struct, prefix)

    def encode_response(self, object struct, int32_t correlation_id, bint flexible_header):
        """A whole frame: length, response header, body.  A list of parts when a records field holds a FileRegion."""
        return encode_frame(self.plan, struct, correlation_id, flexible_header, PY_SSIZE_T_MAX)

    def decoding(self, object buffer, Py_ssize_t pos=0, object end=None):
        """`decode`, in pieces."""
        return Decoding(self.plan, buffer, pos, end)

    def begin_response(self, object struct, int32_t correlation_id, bint flexible_header, Py_ssize_t items):
        """`encode_response`; of more than so many items an `Encoding`, which gives the frame when it is done."""
        return encode_frame(self.plan, struct, correlation_id, flexible_header, items)

    def __repr__(self):
        return f"<{self.struct_class.__name__} v{self.version}>"
