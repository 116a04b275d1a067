from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from kbroker._fast.base.cursor cimport Cursor
from kbroker._fast.wire.structs cimport MAX_DEPTH, Frame, Plan


cdef struct Decoder:
    Cursor cursor
    const uint8_t* start
    PyObject* source
    PyObject* root    # the class being decoded
    Py_ssize_t items_left
    Py_ssize_t work_left    # of this piece, in items
    bint whole              # within tagged fields, which are decoded in one piece
    bint lends              # gives large bytes as views
    bint suspended
    int suspended_depth     # of the struct whose array the piece ended in
    int depth
    Frame frames[MAX_DEPTH]


cdef void begin(
    Decoder* self, Plan plan, object source, const Py_buffer* view, Py_ssize_t position, Py_ssize_t limit
) noexcept
cdef Py_ssize_t limit_of(const Py_buffer* view, Py_ssize_t position, object end) except -1
cdef int fill_struct(Decoder* self, Plan plan, object struct, Py_ssize_t i) except -1
cdef int go_on_struct(Decoder* self, Plan plan, object struct) except -1
cdef object decode(Plan plan, object source, Py_ssize_t position, object end, Py_ssize_t* next_position)
