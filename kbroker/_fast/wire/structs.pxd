from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint32_t


cdef enum DefaultKind:
    DEFAULT_VALUE = 0   # an immutable value, shared
    DEFAULT_LIST = 1    # a fresh empty list
    DEFAULT_STRUCT = 2  # a fresh struct, made when first looked at


cdef enum Kind:
    KIND_BOOL = 1
    KIND_INT8 = 2
    KIND_INT16 = 3
    KIND_UINT16 = 4
    KIND_INT32 = 5
    KIND_UINT32 = 6
    KIND_INT64 = 7
    KIND_FLOAT64 = 8
    KIND_UUID = 9
    KIND_STRING = 10
    KIND_BYTES = 11
    KIND_RECORDS = 12
    KIND_STRUCT = 13
    KIND_ARRAY = 14


cdef enum:
    MAX_DEPTH = 16


cdef enum:
    # A nullable struct in a tagged field: Kafka says with a varint, not with an int8, whether it is there.
    NULLABLE_IN_TAG = 2


cdef struct Op:
    uint8_t kind
    uint8_t item            # the kind of an array's items
    uint8_t nullable
    uint8_t compact         # compact lengths: the version is flexible, the field not exempt
    uint8_t default_kind
    uint8_t ignorable       # for an absent field: may be dropped in silence
    uint32_t tag
    Py_ssize_t offset       # of the slot within the struct
    Py_ssize_t item_minimum  # least number of bytes that an item takes
    PyObject* plan          # of the nested struct or the array's items; borrowed, Plan.children owns
    PyObject* name          # borrowed from the layout, as is the default
    PyObject* default


cdef struct Frame:
    const Op* op
    Py_ssize_t index
    # Where decoding or encoding in pieces goes on: the field of the struct at this depth, the length of its array.
    Py_ssize_t field
    Py_ssize_t count


cdef class Layout:
    cdef readonly tuple names
    cdef readonly tuple defaults
    cdef dict positions
    cdef Py_ssize_t count
    cdef Py_ssize_t* offsets
    cdef uint8_t* kinds
    cdef Py_ssize_t find(self, PyObject* name, Py_ssize_t hint) except -2


cdef class Struct:
    pass


cdef class Plan:
    cdef readonly type struct_class
    cdef readonly bint flexible
    cdef readonly Py_ssize_t minimum
    cdef readonly int depth
    cdef Layout layout
    cdef tuple children
    cdef Op* ops
    cdef Py_ssize_t op_count
    cdef Op* tagged
    cdef Py_ssize_t tagged_count
    cdef Op* absent
    cdef Py_ssize_t absent_count
    cdef int load(self, Op* ops, tuple rows) except -1


cdef extern from "Python.h":
    object PyType_GenericAlloc(type cls, Py_ssize_t count)


cdef Layout layout_of(object struct)
cdef object default_of(const Op* op)
cdef bint same_as_default(const Op* op, PyObject* value) except -1
cdef str field_path(type struct_class, const Frame* frames, int depth, const Op* op)


cdef inline PyObject** slot_of(object struct, Py_ssize_t offset) noexcept:
    return <PyObject**>((<char*><PyObject*>struct) + offset)


cdef inline void store(object struct, Py_ssize_t offset, object value) noexcept:
    cdef PyObject** place = slot_of(struct, offset)
    cdef PyObject* old = place[0]
    Py_INCREF(value)
    place[0] = <PyObject*>value
    Py_XDECREF(old)
