"""Encodes a struct by running its plan, into one growable C buffer.

A records field that holds a `FileRegion` cuts the output: the result is then a list of bytes and regions, and every
length that covers the region counts its size.  `encode_parts` cuts at every records field: large batches then leave
without being copied.  As in Kafka, a field that the version lacks must hold its default unless it may be ignored.
Only `EncodeError` leaves here (and MemoryError), with the path of the field at fault.

A large answer is encoded in pieces (`encoding.pyx`), as `decoder.pyx` decodes a large request: behind an item of an
array the recursion unwinds, and `go_on_struct` descends again by the frames.  What was written until then becomes a
part of the frame.  Not within tagged fields, whose size stands before them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.base.growable cimport (
    Growable, growable_free, growable_prefix_size, growable_reserve, put_8, put_16, put_32, put_64, put_bytes,
    put_uvarint,
)
from kbroker._fast.wire.python_values cimport (
    PY_SSIZE_T_MAX, PyBytes_Check, PyErr_Clear, PyErr_Occurred, PyFloat_AsDouble, PyLong_AsLong, PyLong_Check,
    PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE, PyUnicode_AsUTF8AndSize, PyUnicode_Check, is_sequence,
)
from kbroker._fast.wire.repeats cimport forget, remember, repeat
from kbroker._fast.wire.structs cimport (
    KIND_ARRAY, KIND_BOOL, KIND_FLOAT64, KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_RECORDS, KIND_STRING,
    KIND_STRUCT, KIND_UINT16, KIND_UUID, Frame, Op, Plan, default_of, field_path, NULLABLE_IN_TAG, same_as_default,
    slot_of,
)


cdef enum:
    MAX_STRING = 0x7FFF
    WEIGHT_BYTES = 256  # so many bytes that are copied take about as long as an item
    KEPT = 1 << 18  # bytes of buffer kept from one call to the next


class EncodeError(ValueError):
    """The struct has no encoding in this version; the message names the field."""


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
    self.work_left = PY_SSIZE_T_MAX
    self.whole = self.suspended = False
    self.suspended_depth = -1
    self.repeats.next = 0
    forget(&self.repeats)


cdef void finish(Encoder* self) noexcept:
    global kept
    if self.out.capacity > KEPT or kept.data != NULL:
        growable_free(&self.out)
    else:
        kept = self.out


cdef int fail(Encoder* self, const Op* op, str reason) except -1:
    path = field_path(<type>self.root, self.frames, self.depth, op)
    raise EncodeError(f"{path}: {reason}")


cdef int encode_struct(Encoder* self, Plan plan, object struct) except -1:
    cdef Py_ssize_t i
    cdef const Op* op
    if type(struct) is not plan.struct_class:
        return fail(self, NULL, f"a {plan.struct_class.__name__} is needed, not {type(struct).__name__}")
    for i in range(plan.absent_count):
        op = &plan.absent[i]
        if not op.ignorable and not same_as_default(op, slot_of(struct, op.offset)[0]):
            return fail(self, op, "not its default, in a version that lacks the field")
    return encode_fields(self, plan, struct, 0)


cdef inline int encode_fields(Encoder* self, Plan plan, object struct, Py_ssize_t i) except -1:
    """The fields from the one at `i` on; fewer where the piece ends."""
    cdef const Op* op
    cdef PyObject* value
    while i < plan.op_count:
        op = &plan.ops[i]
        value = slot_of(struct, op.offset)[0]
        if value == NULL:
            encode_field(self, op, default_of(op))
        elif op.kind < KIND_STRING:
            encode_scalar(self, op, op.kind, value)
        else:
            if op.kind == KIND_ARRAY:
                encode_array(self, op, value)
            else:
                encode_field(self, op, <object>value)
            if self.suspended:
                self.frames[self.depth].field = i
                return 0
        i += 1
    if plan.flexible:
        encode_tagged(self, plan, struct)
    return 0


cdef int go_on_struct(Encoder* self, Plan plan, object struct) except -1:
    """Go on with a struct that the end of a piece has left."""
    cdef Py_ssize_t i = self.frames[self.depth].field
    cdef const Op* op = &plan.ops[i]
    cdef PyObject* value = slot_of(struct, op.offset)[0]
    if op.kind == KIND_STRUCT:
        self.depth += 1
        go_on_struct(self, <Plan>op.plan, <object>value)
        self.depth -= 1
    else:
        go_on_array(self, op, value)
    if self.suspended:
        return 0
    return encode_fields(self, plan, struct, i + 1)


cdef int go_on_array(Encoder* self, const Op* op, PyObject* value) except -1:
    """Go on behind the item that the end of a piece has left complete, or with the one that it has not."""
    cdef Frame* frame = &self.frames[self.depth]
    if not is_sequence(value):
        return fail(self, op, "the list changed while it was read")
    if self.depth < self.suspended_depth:
        if frame.index >= PySequence_Fast_GET_SIZE(value):
            return fail(self, op, "the list changed while it was read")
        item = <object>PySequence_Fast_GET_ITEM(value, frame.index)
        if type(item) is not (<Plan>op.plan).struct_class:
            return fail(self, op, "the list changed while it was read")
        self.depth += 1
        go_on_struct(self, <Plan>op.plan, item)
        self.depth -= 1
        if self.suspended:
            return 0
    return encode_items(self, op, value, frame.index + 1, frame.count)


cdef int encode_tagged(Encoder* self, Plan plan, object struct) except -1:
    cdef uint32_t count = 0
    cdef Py_ssize_t i, start
    cdef const Op* op
    cdef PyObject* value
    cdef bint whole = self.whole
    for i in range(plan.tagged_count):
        op = &plan.tagged[i]
        count += not same_as_default(op, slot_of(struct, op.offset)[0])
    growable_reserve(&self.out, 5)
    put_uvarint(&self.out, count)
    if count == 0:
        return 0
    self.whole = True
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
    self.whole = whole
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
        self.work_left -= size // WEIGHT_BYTES
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
        self.work_left -= view.len // WEIGHT_BYTES
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
        put_8(&self.out, (0 if op.nullable == NULLABLE_IN_TAG else 0xFF) if value is None else 1)
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
    cdef Py_ssize_t count, copied
    cdef Py_ssize_t start = self.out.size
    cdef int64_t cut = self.region_bytes
    if value == <PyObject*>None:
        if not op.nullable:
            return fail(self, op, "null where a value is required")
        return encode_length(self, op, KIND_ARRAY, -1)
    if not is_sequence(value):
        return fail(self, op, f"a list is needed, not {type(<object>value).__name__}")
    copied = repeat(&self.repeats, &self.out, op, value)
    if copied:
        self.work_left -= copied // WEIGHT_BYTES
        return 0
    count = PySequence_Fast_GET_SIZE(value)
    encode_length(self, op, KIND_ARRAY, count)
    encode_items(self, op, value, 0, count)
    # Neither half of it, nor bytes that are not here or that a size in front of them may yet move.
    if op.item == KIND_STRUCT and not self.suspended and not self.whole and self.region_bytes == cut:
        remember(&self.repeats, &self.out, op, value, start)
    return 0


cdef inline int encode_items(Encoder* self, const Op* op, PyObject* value, Py_ssize_t i, Py_ssize_t count) except -1:
    """The items from the one at `i` on; fewer where the piece ends."""
    cdef Frame* frame = &self.frames[self.depth]
    cdef Plan plan
    # The size is asked for anew each time: a finaliser, or others between two pieces, may change the list.
    if op.item == KIND_STRUCT:
        plan = <Plan>op.plan
        frame.op = op
        frame.count = count
        self.depth += 1
        while i < count:
            if i >= PySequence_Fast_GET_SIZE(value):
                return fail(self, op, "the list changed while it was read")
            frame.index = i
            encode_struct(self, plan, <object>PySequence_Fast_GET_ITEM(value, i))
            i += 1
            self.work_left -= 1
            if self.work_left < 0 and is_piece_over(self, self.depth - 1):
                break
        self.depth -= 1
        return 0
    while i < count:
        if i >= PySequence_Fast_GET_SIZE(value):
            return fail(self, op, "the list changed while it was read")
        if op.item < KIND_STRING:
            encode_scalar(self, op, op.item, PySequence_Fast_GET_ITEM(value, i))
        else:
            encode_sized(self, op, op.item, False, <object>PySequence_Fast_GET_ITEM(value, i))
        i += 1
        self.work_left -= 1
        if self.work_left < 0 and is_piece_over(self, self.depth):
            frame.op = op
            frame.count = count
            frame.index = i - 1
            break
    return 0


cdef bint is_piece_over(Encoder* self, int depth) noexcept:
    """Whether to stop behind the item that was just encoded, or within it, where that has been left already."""
    if not self.suspended and not self.whole:
        self.suspended = True
        self.suspended_depth = depth
    return self.suspended
