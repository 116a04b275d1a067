"""Encodes a struct by running its plan, into one growable C buffer.

A records field that holds a `FileRegion` cuts the output: the result is then a list of bytes and regions, and every
length that covers the region counts its size.  `encode_parts` cuts at every records field: large batches then leave
without being copied.  As in Kafka, a field that the version lacks must hold its default unless it may be ignored.
Only `EncodeError` leaves here (and MemoryError), with the path of the field at fault.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kbroker._fast.file_region cimport FileRegion
from kbroker._fast.growable cimport (
    Growable, growable_free, growable_prefix_size, growable_reserve, kb_store32, put_8, put_16, put_32, put_64,
    put_bytes, put_uvarint,
)
from kbroker._fast.structs cimport (
    KIND_ARRAY, KIND_BOOL, KIND_FLOAT64, KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_RECORDS,
    KIND_STRING, KIND_STRUCT, KIND_UINT16, KIND_UUID, MAX_DEPTH, Frame, Op, Plan, default_of, field_path,
    same_as_default, slot_of,
)


cdef extern from "Python.h":
    long PyLong_AsLong(PyObject* value)
    bint PyLong_Check(PyObject* value)
    bint PyList_Check(PyObject* value)
    bint PyTuple_Check(PyObject* value)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject* items)
    PyObject* PySequence_Fast_GET_ITEM(PyObject* items, Py_ssize_t i)
    double PyFloat_AsDouble(object value)
    PyObject* PyErr_Occurred()
    void PyErr_Clear()
    const char* PyUnicode_AsUTF8AndSize(object value, Py_ssize_t* size)
    bint PyUnicode_Check(object value)
    bint PyBytes_Check(object value)

cdef enum:
    MAX_STRING = 0x7FFF
    MAX_FRAME = 0x7FFFFFFF
    KEPT = 1 << 18  # bytes of buffer kept from one call to the next


class EncodeError(ValueError):
    """The struct has no encoding in this version; the message names the field."""


cdef struct Encoder:
    Growable out
    int64_t region_bytes
    PyObject* cuts    # a list of (position in out, FileRegion or buffer), or NULL; owned by the caller
    bint cuts_buffers  # records that are buffers are left out, too
    PyObject* root
    int depth
    Frame frames[MAX_DEPTH]

# One buffer goes from call to call (all run under the GIL); a call within a call finds none and makes its own.
cdef Growable kept


cdef void begin(Encoder* self, Plan plan) noexcept:
    self.out = kept
    self.out.size = 0
    memset(&kept, 0, sizeof(Growable))
    self.region_bytes = 0
    self.root = <PyObject*>plan.struct_class
    self.depth = 0
    self.cuts = NULL
    self.cuts_buffers = False


cdef void finish(Encoder* self) noexcept:
    global kept
    if self.out.capacity > KEPT or kept.data != NULL:
        growable_free(&self.out)
    else:
        kept = self.out


cdef bytes encode_body(Plan plan, object struct, bytes prefix):
    cdef Encoder encoder
    begin(&encoder, plan)
    try:
        growable_reserve(&encoder.out, PyBytes_GET_SIZE(prefix) + 16)
        put_bytes(&encoder.out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(&encoder, plan, struct)
        return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
    finally:
        finish(&encoder)


cdef object encode_frame(Plan plan, object struct, int32_t correlation_id, bint flexible_header):
    cdef Encoder encoder
    cdef list cuts = []
    begin(&encoder, plan)
    encoder.cuts = <PyObject*>cuts
    try:
        growable_reserve(&encoder.out, 16)
        put_32(&encoder.out, 0)
        put_32(&encoder.out, <uint32_t>correlation_id)
        if flexible_header:
            put_8(&encoder.out, 0)
        encode_struct(&encoder, plan, struct)
        set_length(&encoder)
        if not cuts:
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
        return parts_of(&encoder.out, cuts)
    finally:
        finish(&encoder)


cdef list encode_parts(Plan plan, object struct, bytes prefix):
    cdef Encoder encoder
    cdef list cuts = []
    begin(&encoder, plan)
    encoder.cuts = <PyObject*>cuts
    encoder.cuts_buffers = True
    try:
        growable_reserve(&encoder.out, PyBytes_GET_SIZE(prefix) + 16)
        put_32(&encoder.out, 0)
        put_bytes(&encoder.out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(&encoder, plan, struct)
        set_length(&encoder)
        return parts_of(&encoder.out, cuts)
    finally:
        finish(&encoder)


cdef int set_length(Encoder* self) except -1:
    cdef int64_t total = self.out.size - 4 + self.region_bytes
    if total > MAX_FRAME:
        fail(self, NULL, f"a frame of {total} bytes, more than {MAX_FRAME}")
    kb_store32(self.out.data, <uint32_t>total)
    return 0


cdef list parts_of(const Growable* out, list cuts):
    cdef list parts = []
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t position
    for cut, region in cuts:
        position = cut
        if position > start:
            parts.append(PyBytes_FromStringAndSize(<char*>out.data + start, position - start))
        parts.append(region)
        start = position
    if out.size > start:
        parts.append(PyBytes_FromStringAndSize(<char*>out.data + start, out.size - start))
    return parts


cdef int fail(Encoder* self, const Op* op, str reason) except -1:
    path = field_path(<type>self.root, self.frames, self.depth, op)
    raise EncodeError(f"{path}: {reason}")


cdef int encode_struct(Encoder* self, Plan plan, object struct) except -1:
    cdef Py_ssize_t i
    cdef const Op* op
    cdef PyObject* value
    if type(struct) is not plan.struct_class:
        return fail(self, NULL, f"a {plan.struct_class.__name__} is needed, not {type(struct).__name__}")
    for i in range(plan.absent_count):
        op = &plan.absent[i]
        if not op.ignorable and not same_as_default(op, slot_of(struct, op.offset)[0]):
            return fail(self, op, "not its default, in a version that lacks the field")
    for i in range(plan.op_count):
        op = &plan.ops[i]
        value = slot_of(struct, op.offset)[0]
        if value == NULL:
            encode_field(self, op, default_of(op))
        elif op.kind < KIND_STRING:
            encode_scalar(self, op, op.kind, value)
        elif op.kind == KIND_ARRAY:
            encode_array(self, op, value)
        else:
            encode_field(self, op, <object>value)
    if plan.flexible:
        encode_tagged(self, plan, struct)
    return 0


cdef int encode_tagged(Encoder* self, Plan plan, object struct) except -1:
    cdef uint32_t count = 0
    cdef Py_ssize_t i, start
    cdef const Op* op
    cdef PyObject* value
    for i in range(plan.tagged_count):
        op = &plan.tagged[i]
        count += not same_as_default(op, slot_of(struct, op.offset)[0])
    growable_reserve(&self.out, 5)
    put_uvarint(&self.out, count)
    if count == 0:
        return 0
    for i in range(plan.tagged_count):
        op = &plan.tagged[i]
        value = slot_of(struct, op.offset)[0]
        if same_as_default(op, value):
            continue
        growable_reserve(&self.out, 5)
        put_uvarint(&self.out, op.tag)
        start = self.out.size
        encode_field(self, op, <object>value)
        growable_prefix_size(&self.out, start)
    return 0


cdef int encode_field(Encoder* self, const Op* op, object value) except -1:
    if op.kind < KIND_STRING:
        return encode_scalar(self, op, op.kind, <PyObject*>value)
    if op.kind == KIND_ARRAY:
        return encode_array(self, op, <PyObject*>value)
    if op.kind == KIND_STRUCT:
        return encode_nested(self, op, value)
    return encode_sized(self, op, op.kind, op.nullable, value)


cdef int encode_scalar(Encoder* self, const Op* op, int kind, PyObject* value) except -1:
    cdef long number
    growable_reserve(&self.out, 16)
    if kind == KIND_UUID:
        return encode_uuid(self, op, <object>value)
    if kind == KIND_FLOAT64:
        return encode_float(self, op, <object>value)
    # Real integers alone: their conversion runs no code of anyone's, so the borrowed values around stay alive.
    number = PyLong_AsLong(value) if PyLong_Check(value) else -1
    if number == -1 and (not PyLong_Check(value) or PyErr_Occurred() != NULL):
        PyErr_Clear()
        return fail(self, op, f"{<object>value!r} is no integer of 64 bits")
    if kind == KIND_INT32:
        if number != <int32_t>number:
            return fail_range(self, op, number)
        put_32(&self.out, <uint32_t>number)
    elif kind == KIND_INT16:
        if number != <int16_t>number:
            return fail_range(self, op, number)
        put_16(&self.out, <uint16_t>number)
    elif kind == KIND_INT64:
        put_64(&self.out, <uint64_t>number)
    elif kind == KIND_INT8:
        if number != <int8_t>number:
            return fail_range(self, op, number)
        put_8(&self.out, <uint8_t>number)
    elif kind == KIND_BOOL:
        put_8(&self.out, number != 0)
    elif kind == KIND_UINT16:
        if number != <uint16_t>number:
            return fail_range(self, op, number)
        put_16(&self.out, <uint16_t>number)
    else:
        if number != <uint32_t>number:
            return fail_range(self, op, number)
        put_32(&self.out, <uint32_t>number)
    return 0


cdef int fail_range(Encoder* self, const Op* op, long number) except -1:
    return fail(self, op, f"{number} is out of range")


cdef int encode_uuid(Encoder* self, const Op* op, object value) except -1:
    if not PyBytes_Check(value) or PyBytes_GET_SIZE(value) != 16:
        return fail(self, op, f"an id is 16 bytes, not {value!r}")
    put_bytes(&self.out, PyBytes_AS_STRING(value), 16)
    return 0


cdef int encode_float(Encoder* self, const Op* op, object value) except -1:
    cdef double number = PyFloat_AsDouble(value) if isinstance(value, (float, int)) else -1.0
    cdef uint64_t raw
    if number == -1.0 and (not isinstance(value, (float, int)) or PyErr_Occurred() != NULL):
        PyErr_Clear()
        return fail(self, op, f"{value!r} is no number")
    memcpy(&raw, &number, 8)
    put_64(&self.out, raw)
    return 0


cdef int encode_length(Encoder* self, const Op* op, int kind, int64_t length) except -1:
    """`length` -1 stands for null.  Reserves nothing beyond its own bytes."""
    if length >= MAX_FRAME:
        return fail(self, op, f"length {length}, more than a frame holds")
    growable_reserve(&self.out, 5)
    if op.compact:
        put_uvarint(&self.out, <uint32_t>(length + 1))
    elif kind == KIND_STRING:
        put_16(&self.out, <uint16_t>length)
    else:
        put_32(&self.out, <uint32_t>length)
    return 0


cdef int encode_sized(Encoder* self, const Op* op, int kind, bint nullable, object value) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* start
    cdef Py_buffer view
    if value is None:
        if not nullable:
            return fail(self, op, "null where a value is required")
        return encode_length(self, op, kind, -1)
    if kind == KIND_STRING:
        start = PyUnicode_AsUTF8AndSize(value, &size) if PyUnicode_Check(value) else NULL
        if start == NULL:
            PyErr_Clear()
            return fail(self, op, f"{value!r} is no text that UTF-8 can carry")
        if size > MAX_STRING:
            return fail(self, op, f"a string of {size} bytes, more than {MAX_STRING}")
        encode_length(self, op, kind, size)
        growable_reserve(&self.out, size)
        put_bytes(&self.out, start, size)
        return 0
    if kind == KIND_RECORDS and type(value) is FileRegion:
        return encode_region(self, op, <FileRegion>value)
    try:
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        return fail(self, op, f"bytes are needed, not {type(value).__name__}")
    try:
        if kind == KIND_RECORDS and self.cuts_buffers:
            return encode_cut(self, op, value, view.len)
        encode_length(self, op, kind, view.len)
        growable_reserve(&self.out, view.len)
        put_bytes(&self.out, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int encode_region(Encoder* self, const Op* op, FileRegion region) except -1:
    if self.cuts == NULL or self.cuts_buffers:
        return fail(self, op, "a file region fits into a response only")
    return encode_cut(self, op, region, region.size)


cdef int encode_cut(Encoder* self, const Op* op, object part, int64_t size) except -1:
    encode_length(self, op, KIND_RECORDS, size)
    if size > 0:
        (<list>self.cuts).append((self.out.size, part))
        self.region_bytes += size
    return 0


cdef int encode_nested(Encoder* self, const Op* op, object value) except -1:
    if op.nullable:
        growable_reserve(&self.out, 1)
        put_8(&self.out, 0xFF if value is None else 1)
        if value is None:
            return 0
    elif value is None:
        return fail(self, op, "null where a value is required")
    self.frames[self.depth].op = op
    self.frames[self.depth].index = -1
    self.depth += 1
    encode_struct(self, <Plan>op.plan, value)
    self.depth -= 1
    return 0


cdef int encode_array(Encoder* self, const Op* op, PyObject* value) except -1:
    cdef Py_ssize_t count, i
    cdef Plan plan
    if value == <PyObject*>None:
        if not op.nullable:
            return fail(self, op, "null where a value is required")
        return encode_length(self, op, KIND_ARRAY, -1)
    if not PyList_Check(value) and not PyTuple_Check(value):
        return fail(self, op, f"a list is needed, not {type(<object>value).__name__}")
    count = PySequence_Fast_GET_SIZE(value)
    encode_length(self, op, KIND_ARRAY, count)
    if op.item == KIND_STRUCT:
        plan = <Plan>op.plan
        self.frames[self.depth].op = op
        self.depth += 1
        # The size is asked for anew each time: a finaliser may run meanwhile and change the list.
        for i in range(count):
            if i >= PySequence_Fast_GET_SIZE(value):
                return fail(self, op, "the list changed while it was read")
            self.frames[self.depth - 1].index = i
            encode_struct(self, plan, <object>PySequence_Fast_GET_ITEM(value, i))
        self.depth -= 1
        return 0
    for i in range(count):
        if i >= PySequence_Fast_GET_SIZE(value):
            return fail(self, op, "the list changed while it was read")
        if op.item < KIND_STRING:
            encode_scalar(self, op, op.item, PySequence_Fast_GET_ITEM(value, i))
        else:
            encode_sized(self, op, op.item, False, <object>PySequence_Fast_GET_ITEM(value, i))
    return 0
