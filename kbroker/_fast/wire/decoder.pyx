"""Decodes a struct from untrusted bytes by running its plan.

Every read passes the cursor.  Before anything is allocated, an array's count is compared with the bytes left, divided
by the least size of an item.  A message may hold `MAX_ITEMS` items in all: a struct of three bytes on the wire takes
some 150 bytes in memory, so a request of 100 MB made of these would stall the broker and fill its memory.  Plans do not
recurse, so nesting is bounded by the schema.  Only `DecodeError` leaves here, with the path of the field at fault.

A large message is decoded in pieces (`decoding.pyx`), so that the event loop serves others meanwhile: after so many
items, or as many bytes of strings, the recursion unwinds.  The root struct then holds everything decoded so far, the
frames the position, and `go_on_struct` descends to it again.  Not within tagged fields: no request has large ones.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.base.cursor cimport (
    CURSOR_OK, CURSOR_VARINT_TOO_LONG, Cursor, cursor_init, cursor_int8, cursor_int16, cursor_int32,
    cursor_int64, cursor_left, cursor_take, cursor_uint16, cursor_uint32, cursor_uint64, cursor_uvarint,
)
from kbroker._fast.wire.structs cimport (
    DEFAULT_LIST, DEFAULT_VALUE, KIND_ARRAY, KIND_BOOL, KIND_BYTES, KIND_INT8,
    KIND_INT16, KIND_INT32, KIND_INT64, KIND_STRING, KIND_STRUCT, KIND_UINT16, KIND_UINT32, KIND_UUID,
    NULLABLE_IN_TAG, Frame, Op, Plan, PyType_GenericAlloc, field_path, slot_of,
)


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    PyObject* PyLong_FromLong(long value) except NULL
    PyObject* PyUnicode_DecodeUTF8(const char* start, Py_ssize_t size, const char* errors)
    PyObject* new_bytes "PyBytes_FromStringAndSize" (const char* start, Py_ssize_t size) except NULL
    PyObject* new_float "PyFloat_FromDouble" (double value) except NULL
    void PyErr_Clear()
    object PyMemoryView_FromObject(object source)
    Py_buffer* PyMemoryView_GET_BUFFER(object view)

cdef enum:
    MAX_STRING = 0x7FFF  # what Kafka accepts, in compact form too
    LENT_BYTES = 1 << 20  # larger bytes of a message that is decoded in pieces are memoryviews of its source
    WEIGHT_BYTES = 256  # so many bytes that are copied take about as long as an item
    MAX_ITEMS = 1 << 20  # of all arrays of a message; the largest clusters have some 200,000 partitions


class DecodeError(ValueError):
    """The bytes are no valid encoding; the message names the field."""


cdef void begin(
    Decoder* self, Plan plan, object source, const Py_buffer* view, Py_ssize_t position, Py_ssize_t limit
) noexcept:
    self.start = <const uint8_t*>view.buf
    self.source = <PyObject*>source
    self.root = <PyObject*>plan.struct_class
    self.items_left = MAX_ITEMS
    self.work_left = PY_SSIZE_T_MAX
    self.whole = self.suspended = self.lends = False
    self.suspended_depth = -1
    self.depth = 0
    cursor_init(&self.cursor, self.start + position, limit - position)


cdef Py_ssize_t limit_of(const Py_buffer* view, Py_ssize_t position, object end) except -1:
    cdef Py_ssize_t limit = view.len if end is None else <Py_ssize_t>end
    if position < 0 or limit < position or limit > view.len:
        raise ValueError(f"positions {position} to {limit} lie outside a buffer of {view.len} bytes")
    return limit


cdef object decode(Plan plan, object source, Py_ssize_t position, object end, Py_ssize_t* next_position):
    cdef Py_buffer view
    cdef Decoder decoder
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        begin(&decoder, plan, source, &view, position, limit_of(&view, position, end))
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
    fill_struct(self, plan, struct, 0)
    return struct


cdef int fill_struct(Decoder* self, Plan plan, object struct, Py_ssize_t i) except -1:
    """The fields from the one at `i` on; fewer where the piece ends."""
    cdef const Op* op
    while i < plan.op_count:
        op = &plan.ops[i]
        slot_of(struct, op.offset)[0] = decode_field(self, op)
        if op.kind >= KIND_STRUCT and self.suspended:
            self.frames[self.depth].field = i
            return 0
        i += 1
    if plan.flexible:
        decode_tagged(self, plan, struct)
        for i in range(plan.tagged_count):
            fill_default(struct, &plan.tagged[i])
    for i in range(plan.absent_count):
        fill_default(struct, &plan.absent[i])
    return 0


cdef int go_on_struct(Decoder* self, Plan plan, object struct) except -1:
    """Go on with a struct that the end of a piece has left."""
    cdef Py_ssize_t i = self.frames[self.depth].field
    cdef const Op* op = &plan.ops[i]
    cdef PyObject* value = slot_of(struct, op.offset)[0]
    if op.kind == KIND_STRUCT:
        self.depth += 1
        go_on_struct(self, <Plan>op.plan, <object>value)
        self.depth -= 1
    else:
        go_on_array(self, op, <list>value)
    if self.suspended:
        return 0
    return fill_struct(self, plan, struct, i + 1)


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
    cdef bint whole = self.whole
    self.items_left -= count
    if self.items_left < 0:
        return fail(self, NULL, f"more than {MAX_ITEMS} items in one message")
    self.whole = True
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
    self.whole = whole
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
    """The length of a string, of bytes or of an array; -1 stands for null, as in Kafka any length below it does."""
    cdef Py_ssize_t length
    if op.compact:
        length = <int32_t>(cursor_uvarint(&self.cursor) - 1)
    elif kind == KIND_STRING:
        length = cursor_int16(&self.cursor)
    else:
        length = cursor_int32(&self.cursor)
    if self.cursor.fault != CURSOR_OK:
        fail_read(self, op)
    if length < 0:
        if not nullable:
            fail(self, op, "null where a value is required")
        return -1
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
    if kind == KIND_STRING or kind == KIND_BYTES:
        self.work_left -= length // WEIGHT_BYTES
    if kind == KIND_STRING:
        value = PyUnicode_DecodeUTF8(<const char*>start, length, NULL)
        if value == NULL:
            PyErr_Clear()
            fail(self, op, "not valid UTF-8")
        return value
    if kind == KIND_BYTES and not (self.lends and length > LENT_BYTES):
        return new_bytes(<const char*>start, length)
    return decode_records(self, start, length)


cdef PyObject* decode_records(Decoder* self, const uint8_t* start, Py_ssize_t length) except NULL:
    """A memoryview of a part of the source, made in one step where the source is plain bytes."""
    cdef Py_ssize_t position = start - self.start
    cdef object view = PyMemoryView_FromObject(<object>self.source)
    cdef Py_buffer* inner = PyMemoryView_GET_BUFFER(view)
    if inner.ndim == 1 and inner.itemsize == 1 and inner.format != NULL and inner.format[0] == b"B":
        # What slicing does, upon a view that no other code has seen: the export that it holds is kept apart from these.
        inner.buf = <void*>start
        inner.len = length
        inner.shape[0] = length
    else:
        view = view.cast("B")[position:position + length]
    Py_INCREF(view)
    return <PyObject*>view


cdef PyObject* decode_nested(Decoder* self, const Op* op) except NULL:
    if op.nullable:
        # A marker: null is an int8 below zero, in a tagged field zero.
        if (cursor_uvarint(&self.cursor) == 0) if op.nullable == NULLABLE_IN_TAG else (cursor_int8(&self.cursor) < 0):
            if self.cursor.fault != CURSOR_OK:
                fail_read(self, op)
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
    cdef list items
    if count < 0:
        Py_INCREF(None)
        return <PyObject*>None
    if count > cursor_left(&self.cursor) // op.item_minimum:
        fail(self, op, f"{count} items announced where {cursor_left(&self.cursor)} bytes are left")
    self.items_left -= count
    if self.items_left < 0:
        fail(self, op, f"more than {MAX_ITEMS} items in one message")
    items = PyList_New(count)
    fill_array(self, op, items, 0)
    Py_INCREF(items)
    return <PyObject*>items


cdef int fill_array(Decoder* self, const Op* op, list items, Py_ssize_t i) except -1:
    """The items from the one at `i` on; fewer where the piece ends."""
    cdef Py_ssize_t count = PyList_GET_SIZE(items)
    cdef Plan plan
    cdef PyObject* item
    cdef Frame* frame = &self.frames[self.depth]
    frame.op = op
    if op.item == KIND_STRUCT:
        plan = <Plan>op.plan
        self.depth += 1
        while i < count:
            frame.index = i
            struct = decode_struct(self, plan)
            Py_INCREF(struct)
            PyList_SET_ITEM(items, i, struct)
            i += 1
            self.work_left -= 1
            if self.work_left < 0 and is_piece_over(self, self.depth - 1):
                break
        self.depth -= 1
        return 0
    while i < count:
        frame.index = i
        if op.item < KIND_STRING:
            item = decode_scalar(&self.cursor, op.item)
            set_item(items, i, item)
        else:
            set_item(items, i, decode_sized(self, op, op.item, False))
        i += 1
        self.work_left -= 1
        if self.work_left < 0 and is_piece_over(self, self.depth):
            break
    if self.cursor.fault != CURSOR_OK:
        fail_read(self, op)
    return 0


cdef inline bint is_piece_over(Decoder* self, int depth) noexcept:
    """Whether to stop behind the item that was just decoded, or within it, where that has been left already."""
    if not self.suspended and not self.whole:
        self.suspended = True
        self.suspended_depth = depth
    return self.suspended


cdef int go_on_array(Decoder* self, const Op* op, list items) except -1:
    """Go on behind the item that the end of a piece has left complete, or with the one that it has not."""
    cdef Py_ssize_t i = self.frames[self.depth].index
    if self.depth < self.suspended_depth:
        self.depth += 1
        go_on_struct(self, <Plan>op.plan, <object>PyList_GET_ITEM(items, i))
        self.depth -= 1
        if self.suspended:
            return 0
    return fill_array(self, op, items, i + 1)


cdef extern from *:
    """
    static inline void kb_list_set(PyObject *list, Py_ssize_t i, PyObject *item) { PyList_SET_ITEM(list, i, item); }
    """
    void set_item "kb_list_set" (list items, Py_ssize_t i, PyObject* item)
