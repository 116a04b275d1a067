"""Decodes a struct from untrusted bytes by running its plan.

Every read passes the cursor.  A count is compared with the bytes left, divided by the least size of an item, before
anything is allocated for it, and a message may hold `MAX_ITEMS` items in all: a struct of three bytes on the wire takes
some 150 in memory, and a request of 100 MB made of these would stall the broker and fill its memory.  Plans do not
recurse, so nesting is bounded by the schema.
Only `DecodeError` leaves here, with the path of the field at fault.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.cursor cimport (
    CURSOR_OK, CURSOR_VARINT_TOO_LONG, Cursor, cursor_init, cursor_int8, cursor_int16, cursor_int32,
    cursor_int64, cursor_left, cursor_take, cursor_uint16, cursor_uint32, cursor_uint64, cursor_uvarint,
)
from kbroker._fast.structs cimport (
    DEFAULT_LIST, DEFAULT_VALUE, KIND_ARRAY, KIND_BOOL, KIND_BYTES, KIND_INT8,
    KIND_INT16, KIND_INT32, KIND_INT64, KIND_STRING, KIND_STRUCT, KIND_UINT16, KIND_UINT32, KIND_UUID,
    MAX_DEPTH, Frame, Op, Plan, PyType_GenericAlloc, field_path, slot_of,
)


cdef extern from "Python.h":
    PyObject* PyLong_FromLong(long value) except NULL
    PyObject* PyUnicode_DecodeUTF8(const char* start, Py_ssize_t size, const char* errors)
    PyObject* new_bytes "PyBytes_FromStringAndSize" (const char* start, Py_ssize_t size) except NULL
    PyObject* new_float "PyFloat_FromDouble" (double value) except NULL
    void PyErr_Clear()
    object PyMemoryView_FromObject(object source)
    Py_buffer* PyMemoryView_GET_BUFFER(object view)

cdef enum:
    MAX_STRING = 0x7FFF  # what Kafka accepts, in compact form too
    MAX_ITEMS = 1 << 20  # of all arrays of a message; the largest clusters have some 200,000 partitions


class DecodeError(ValueError):
    """The bytes are no valid encoding; the message names the field."""


cdef struct Decoder:
    Cursor cursor
    const uint8_t* start
    PyObject* source
    PyObject* root    # the class being decoded
    Py_ssize_t items_left
    int depth
    Frame frames[MAX_DEPTH]


cdef object decode(Plan plan, object source, Py_ssize_t position, object end, Py_ssize_t* next_position):
    cdef Py_buffer view
    cdef Decoder decoder
    cdef Py_ssize_t limit
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        limit = view.len if end is None else <Py_ssize_t>end
        if position < 0 or limit < position or limit > view.len:
            raise ValueError(f"positions {position} to {limit} lie outside a buffer of {view.len} bytes")
        decoder.start = <const uint8_t*>view.buf
        decoder.source = <PyObject*>source
        decoder.root = <PyObject*>plan.struct_class
        decoder.items_left = MAX_ITEMS
        decoder.depth = 0
        cursor_init(&decoder.cursor, decoder.start + position, limit - position)
        struct = decode_struct(&decoder, plan)
        next_position[0] = decoder.cursor.position - decoder.start
        return struct
    finally:
        PyBuffer_Release(&view)


cdef int fail(Decoder* self, const Op* op, str reason) except -1:
    path = field_path(<type>self.root, self.frames, self.depth, op)
    raise DecodeError(f"{path}: {reason}")


cdef int fail_read(Decoder* self, const Op* op) except -1:
    if self.cursor.fault == CURSOR_VARINT_TOO_LONG:
        return fail(self, op, "varint too long")
    return fail(self, op, "more bytes needed than are left")


cdef object decode_struct(Decoder* self, Plan plan):
    cdef object struct = PyType_GenericAlloc(plan.struct_class, 0)
    cdef Py_ssize_t i
    cdef const Op* op
    for i in range(plan.op_count):
        op = &plan.ops[i]
        slot_of(struct, op.offset)[0] = decode_field(self, op)
    if plan.flexible:
        decode_tagged(self, plan, struct)
        for i in range(plan.tagged_count):
            fill_default(struct, &plan.tagged[i])
    for i in range(plan.absent_count):
        fill_default(struct, &plan.absent[i])
    return struct


cdef inline int fill_default(object struct, const Op* op) except -1:
    cdef PyObject** place = slot_of(struct, op.offset)
    if place[0] == NULL:
        if op.default_kind == DEFAULT_VALUE:
            Py_INCREF(<object>op.default)
            place[0] = op.default
        elif op.default_kind == DEFAULT_LIST:
            fresh = []
            Py_INCREF(fresh)
            place[0] = <PyObject*>fresh
    return 0


cdef int decode_tagged(Decoder* self, Plan plan, object struct) except -1:
    """Tagged fields may come in any number; those that this version does not know are passed over."""
    cdef uint32_t count = cursor_uvarint(&self.cursor)
    cdef uint32_t tag, size
    cdef Py_ssize_t i
    cdef const Op* op
    cdef const uint8_t* outer_end = self.cursor.end
    cdef PyObject** place
    cdef PyObject* value
    while count > 0 and self.cursor.fault == CURSOR_OK:
        count -= 1
        tag = cursor_uvarint(&self.cursor)
        size = cursor_uvarint(&self.cursor)
        if self.cursor.fault != CURSOR_OK:
            break
        if size > cursor_left(&self.cursor):
            return fail(self, NULL, f"tagged field {tag} of {size} bytes where {cursor_left(&self.cursor)} are left")
        op = NULL
        for i in range(plan.tagged_count):
            if plan.tagged[i].tag == tag:
                op = &plan.tagged[i]
                break
        if op == NULL:
            cursor_take(&self.cursor, size)
            continue
        self.cursor.end = self.cursor.position + size
        value = decode_field(self, op)
        place = slot_of(struct, op.offset)
        Py_XDECREF(place[0])
        place[0] = value
        if self.cursor.position != self.cursor.end:
            return fail(self, op, f"{cursor_left(&self.cursor)} bytes left over in a tagged field")
        self.cursor.end = outer_end
    if self.cursor.fault != CURSOR_OK:
        return fail_read(self, NULL)
    return 0


cdef PyObject* decode_field(Decoder* self, const Op* op) except NULL:
    cdef PyObject* value
    if op.kind < KIND_STRING:
        value = decode_scalar(&self.cursor, op.kind)
        if self.cursor.fault != CURSOR_OK:
            Py_XDECREF(value)
            fail_read(self, op)
        return value
    if op.kind == KIND_STRUCT:
        return decode_nested(self, op)
    if op.kind == KIND_ARRAY:
        return decode_array(self, op)
    return decode_sized(self, op, op.kind, op.nullable)


cdef inline PyObject* decode_scalar(Cursor* cursor, int kind) except NULL:
    """A value of fixed size; on a fault the caller drops what comes back."""
    cdef const uint8_t* bytes_16
    cdef uint64_t raw
    cdef double number
    if kind == KIND_INT32:
        return PyLong_FromLong(cursor_int32(cursor))
    if kind == KIND_INT64:
        return PyLong_FromLong(cursor_int64(cursor))
    if kind == KIND_INT16:
        return PyLong_FromLong(cursor_int16(cursor))
    if kind == KIND_INT8:
        return PyLong_FromLong(cursor_int8(cursor))
    if kind == KIND_BOOL:
        flag = cursor_int8(cursor) != 0
        Py_INCREF(flag)
        return <PyObject*>flag
    if kind == KIND_UUID:
        bytes_16 = cursor_take(cursor, 16)
        return new_bytes(<const char*>bytes_16, 0 if bytes_16 == NULL else 16)
    if kind == KIND_UINT16:
        return PyLong_FromLong(cursor_uint16(cursor))
    if kind == KIND_UINT32:
        return PyLong_FromLong(cursor_uint32(cursor))
    raw = cursor_uint64(cursor)
    memcpy(&number, &raw, 8)
    return new_float(number)


cdef Py_ssize_t decode_length(Decoder* self, const Op* op, int kind, bint nullable) except -2:
    """The length of a string, of bytes or of an array; -1 stands for null."""
    cdef Py_ssize_t length
    if op.compact:
        length = <Py_ssize_t>cursor_uvarint(&self.cursor) - 1
    elif kind == KIND_STRING:
        length = cursor_int16(&self.cursor)
    else:
        length = cursor_int32(&self.cursor)
    if self.cursor.fault != CURSOR_OK:
        fail_read(self, op)
    if length < 0:
        if length < -1:
            fail(self, op, f"negative length {length}")
        if not nullable:
            fail(self, op, "null where a value is required")
    return length


cdef PyObject* decode_sized(Decoder* self, const Op* op, int kind, bint nullable) except NULL:
    """A string, bytes or records."""
    cdef Py_ssize_t length = decode_length(self, op, kind, nullable)
    cdef const uint8_t* start
    cdef PyObject* value
    if length < 0:
        Py_INCREF(None)
        return <PyObject*>None
    if kind == KIND_STRING and length > MAX_STRING:
        fail(self, op, f"a string of {length} bytes, more than {MAX_STRING}")
    start = cursor_take(&self.cursor, length)
    if start == NULL:
        fail(self, op, f"{length} bytes wanted, more than are left")
    if kind == KIND_STRING:
        value = PyUnicode_DecodeUTF8(<const char*>start, length, NULL)
        if value == NULL:
            PyErr_Clear()
            fail(self, op, "not valid UTF-8")
        return value
    if kind == KIND_BYTES:
        return new_bytes(<const char*>start, length)
    return decode_records(self, start, length)


cdef PyObject* decode_records(Decoder* self, const uint8_t* start, Py_ssize_t length) except NULL:
    """A memoryview of a part of the source, made in one step where the source is plain bytes."""
    cdef Py_ssize_t position = start - self.start
    cdef object view = PyMemoryView_FromObject(<object>self.source)
    cdef Py_buffer* inner = PyMemoryView_GET_BUFFER(view)
    if inner.ndim == 1 and inner.itemsize == 1 and inner.format != NULL and inner.format[0] == b"B":
        # What slicing does, upon a view that nobody else has seen: the export that it holds is kept apart from these.
        inner.buf = <void*>start
        inner.len = length
        inner.shape[0] = length
    else:
        view = view.cast("B")[position:position + length]
    Py_INCREF(view)
    return <PyObject*>view


cdef PyObject* decode_nested(Decoder* self, const Op* op) except NULL:
    if op.nullable:
        # A marker byte: below zero is null.
        if cursor_int8(&self.cursor) < 0:
            Py_INCREF(None)
            return <PyObject*>None
        if self.cursor.fault != CURSOR_OK:
            fail_read(self, op)
    self.frames[self.depth].op = op
    self.frames[self.depth].index = -1
    self.depth += 1
    struct = decode_struct(self, <Plan>op.plan)
    self.depth -= 1
    Py_INCREF(struct)
    return <PyObject*>struct


cdef PyObject* decode_array(Decoder* self, const Op* op) except NULL:
    cdef Py_ssize_t count = decode_length(self, op, KIND_ARRAY, op.nullable)
    cdef Py_ssize_t i
    cdef list items
    cdef PyObject* item
    cdef Plan plan
    if count < 0:
        Py_INCREF(None)
        return <PyObject*>None
    if count > cursor_left(&self.cursor) // op.item_minimum:
        fail(self, op, f"{count} items announced where {cursor_left(&self.cursor)} bytes are left")
    self.items_left -= count
    if self.items_left < 0:
        fail(self, op, f"more than {MAX_ITEMS} items in one message")
    items = PyList_New(count)
    if op.item == KIND_STRUCT:
        plan = <Plan>op.plan
        self.frames[self.depth].op = op
        self.depth += 1
        for i in range(count):
            self.frames[self.depth - 1].index = i
            struct = decode_struct(self, plan)
            Py_INCREF(struct)
            PyList_SET_ITEM(items, i, struct)
        self.depth -= 1
    elif op.item < KIND_STRING:
        for i in range(count):
            item = decode_scalar(&self.cursor, op.item)
            set_item(items, i, item)
        if self.cursor.fault != CURSOR_OK:
            fail_read(self, op)
    else:
        for i in range(count):
            set_item(items, i, decode_sized(self, op, op.item, False))
    Py_INCREF(items)
    return <PyObject*>items


cdef extern from *:
    """
    static inline void kb_list_set(PyObject *list, Py_ssize_t i, PyObject *item) { PyList_SET_ITEM(list, i, item); }
    """
    void set_item "kb_list_set" (list items, Py_ssize_t i, PyObject* item)
