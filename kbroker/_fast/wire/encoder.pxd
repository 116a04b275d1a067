from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kbroker._fast.base.growable cimport Growable
from kbroker._fast.wire.repeats cimport Repeats
from kbroker._fast.wire.structs cimport MAX_DEPTH, Frame, Op, Plan


cdef struct Encoder:
    Growable out
    int64_t region_bytes
    PyObject* cuts    # a list of (position in out, FileRegion or buffer), or NULL; owned by the caller
    bint cuts_buffers  # records that are buffers are left out, too
    PyObject* root
    Py_ssize_t work_left    # of this piece, in items
    bint whole              # within tagged fields, which are encoded in one piece
    bint suspended
    int suspended_depth     # of the struct whose array the piece ended in
    int depth
    Repeats repeats
    Frame frames[MAX_DEPTH]


cdef enum:
    MAX_FRAME = 0x7FFFFFFF


cdef void begin(Encoder* self, Plan plan) noexcept
cdef void finish(Encoder* self) noexcept
cdef int fail(Encoder* self, const Op* op, str reason) except -1
cdef int encode_struct(Encoder* self, Plan plan, object struct) except -1
cdef int go_on_struct(Encoder* self, Plan plan, object struct) except -1
