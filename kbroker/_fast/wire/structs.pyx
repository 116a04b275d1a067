"""Message structs with slots that C reads and writes by offset, and the plans that describe them per version.

A struct class is an ordinary heap type: a subclass of `Struct` whose `__slots__` are the fields.  Its `Layout` holds
per field the slot's offset and the default.  A `Plan` is one struct in one version: arrays of `Op`, in wire order, for
the fields that are present, the tagged ones in order of their tags, and those the version lacks.

Invariants: every slot of a struct holds a value after construction or decoding, but nested structs that were not set
stay empty until first looked at (a Fetch answer has three per partition that hardly anyone uses): `NestedField` fills
them. Code that reads slots in C takes an empty slot for the default.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyObject_RichCompareBool, Py_EQ


cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) except NULL
    ctypedef struct PyTypeObject:
        vectorcallfunc tp_vectorcall
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    PyTypeObject PyMemberDescr_Type
    PyObject* _PyType_Lookup(PyTypeObject* cls, object name)
    PyTypeObject* Py_TYPE(object)
    PyObject* PyTuple_GET_ITEM(tuple items, Py_ssize_t i)
    Py_ssize_t PyTuple_GET_SIZE(tuple items)
    Py_ssize_t PyVectorcall_NARGS(size_t flags)

cdef str LAYOUT = "_layout"
cdef tuple EMPTY = ()


cdef Py_ssize_t member_offset(type cls, str name) except -1:
    cdef object member = cls.__dict__[name]
    if Py_TYPE(member) != &PyMemberDescr_Type:
        raise TypeError(f"{cls.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject*><PyObject*>member).d_member.offset


cdef class Layout:
    """The fields of one struct class: names, slot offsets, defaults."""

    def __cinit__(self, type cls, tuple names, tuple defaults):
        cdef Py_ssize_t i
        self.names = names
        self.defaults = defaults
        self.count = len(names)
        self.positions = {name: i for i, name in enumerate(names)}
        self.offsets = <Py_ssize_t*>PyMem_Malloc(max(self.count, 1) * sizeof(Py_ssize_t))
        self.kinds = <uint8_t*>PyMem_Malloc(max(self.count, 1))
        if self.offsets == NULL or self.kinds == NULL:
            raise MemoryError
        for i in range(self.count):
            self.offsets[i] = member_offset(cls, names[i])
            if defaults[i] is list:
                self.kinds[i] = DEFAULT_LIST
            elif isinstance(defaults[i], type):
                self.kinds[i] = DEFAULT_STRUCT
            else:
                self.kinds[i] = DEFAULT_VALUE

    cdef Py_ssize_t find(self, PyObject* name, Py_ssize_t hint) except -2:
        """The index of a field, or -1.  Names mostly come in the table's order: the search starts at `hint`."""
        cdef Py_ssize_t i
        for i in range(hint, self.count):
            if PyTuple_GET_ITEM(self.names, i) == name:
                return i
        return self.positions.get(<object>name, -1)

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.kinds)


cdef Layout layout_of(object struct):
    cdef PyObject* found = _PyType_Lookup(Py_TYPE(struct), LAYOUT)
    if found == NULL:
        raise TypeError(f"{type(struct).__name__} has no fields of its own")
    return <Layout>found


cdef class NestedField:
    """The attribute of a nested struct: made with its defaults when first looked at."""

    cdef Py_ssize_t offset
    cdef type struct_class
    cdef str name

    def __cinit__(self, Py_ssize_t offset, type struct_class, str name):
        self.offset = offset
        self.struct_class = struct_class
        self.name = name

    def __get__(self, instance, owner):
        cdef PyObject** place
        if instance is None:
            return self
        place = slot_of(instance, self.offset)
        if place[0] == NULL:
            store(instance, self.offset, self.struct_class())
        return <object>place[0]

    def __set__(self, instance, value):
        store(instance, self.offset, value)


cdef int fill_defaults(object struct, Layout layout) except -1:
    cdef Py_ssize_t i
    for i in range(layout.count):
        if layout.kinds[i] != DEFAULT_STRUCT and slot_of(struct, layout.offsets[i])[0] == NULL:
            store(struct, layout.offsets[i], [] if layout.kinds[i] == DEFAULT_LIST else layout.defaults[i])
    return 0


cdef int unknown_field(object struct, object name) except -1:
    raise TypeError(f"{type(struct).__name__} has no field {name!r}")


cdef PyObject* construct(PyObject* cls, PyObject* const* values, size_t flags, PyObject* names) except NULL:
    """What calling a struct class runs, in place of `__new__` and `__init__`: no dictionary of arguments is made."""
    cdef object struct = PyType_GenericAlloc(<type>cls, 0)
    cdef Layout layout = layout_of(struct)
    cdef Py_ssize_t given = 0 if names == NULL else PyTuple_GET_SIZE(<tuple>names)
    cdef Py_ssize_t i, at = 0
    if PyVectorcall_NARGS(flags) > 0:
        raise TypeError(f"{type(struct).__name__} takes its fields by name")
    for i in range(given):
        at = layout.find(PyTuple_GET_ITEM(<tuple>names, i), at)
        if at < 0:
            unknown_field(struct, (<tuple>names)[i])
        store(struct, layout.offsets[at], <object>values[i])
    fill_defaults(struct, layout)
    Py_INCREF(struct)
    return <PyObject*>struct


cdef class Struct:
    """The base of every message and of every struct within one.  Made by `make_struct`, never by hand."""

    def __init__(self, **fields):
        cdef Layout layout = layout_of(self)
        cdef Py_ssize_t at
        for name, value in fields.items():
            at = layout.find(<PyObject*>name, 0)
            if at < 0:
                unknown_field(self, name)
            store(self, layout.offsets[at], value)
        fill_defaults(self, layout)

    def __eq__(self, other):
        cdef Layout layout
        cdef PyObject* left
        cdef PyObject* right
        cdef Py_ssize_t i
        if type(self) is not type(other):
            return NotImplemented
        layout = layout_of(self)
        for i in range(layout.count):
            left = slot_of(self, layout.offsets[i])[0]
            right = slot_of(other, layout.offsets[i])[0]
            if left == NULL or right == NULL:
                if getattr(self, layout.names[i]) != getattr(other, layout.names[i]):
                    return False
            elif not PyObject_RichCompareBool(<object>left, <object>right, Py_EQ):
                return False
        return True

    def __repr__(self):
        cdef list parts = []
        for name in layout_of(self).names:
            parts.append(f"{name}={getattr(self, name)!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def make_struct(str name, type base, tuple names, tuple defaults, dict namespace):
    """A subclass of `base` with a slot per name.

    A default is the value itself, `list` for a fresh list, or a struct class for a fresh struct of it.
    """
    cls = type(base)(name, (base,), {**namespace, "__slots__": names})
    layout = Layout(cls, names, defaults)
    cls._layout = layout
    (<PyTypeObject*><PyObject*>cls).tp_vectorcall = construct
    for i in range(layout.count):
        if layout.kinds[i] == DEFAULT_STRUCT:
            setattr(cls, names[i], NestedField(layout.offsets[i], defaults[i], names[i]))
    return cls


cdef object default_of(const Op* op):
    if op.default_kind == DEFAULT_VALUE:
        return <object>op.default
    if op.default_kind == DEFAULT_LIST:
        return []
    return (<object>op.default)()


cdef bint same_as_default(const Op* op, PyObject* value) except -1:
    if value == NULL:
        return True
    if op.default_kind == DEFAULT_VALUE:
        return value == op.default or PyObject_RichCompareBool(<object>value, <object>op.default, Py_EQ)
    if value == <PyObject*>None:
        return False
    if op.default_kind == DEFAULT_LIST:
        return len(<object>value) == 0
    return <object>value == (<object>op.default)()


cdef str field_path(type struct_class, const Frame* frames, int depth, const Op* op):
    """`Message.field[3].field`, for errors."""
    cdef list parts = [struct_class.__name__]
    cdef int i
    for i in range(depth):
        part = <str>frames[i].op.name
        parts.append(part if frames[i].index < 0 else f"{part}[{frames[i].index}]")
    if op != NULL:
        parts.append(<str>op.name)
    return ".".join(parts)


cdef class Plan:
    """One struct in one version.

    A row of `fields` and `tagged` is (name, kind, item kind, nullable, compact, tag, nested Plan or None); a row of
    `absent` is (name, ignorable).
    """

    def __cinit__(self, type struct_class, bint flexible, tuple fields, tuple tagged, tuple absent):
        cdef Py_ssize_t i
        self.struct_class = struct_class
        self.flexible = flexible
        self.layout = struct_class._layout
        self.children = tuple([row[6] for row in fields + tagged if row[6] is not None])
        self.depth = 1 + max([(<Plan>child).depth for child in self.children], default=0)
        if self.depth >= MAX_DEPTH:
            raise ValueError(f"{struct_class.__name__} nests deeper than {MAX_DEPTH}")
        self.op_count = len(fields)
        self.tagged_count = len(tagged)
        self.absent_count = len(absent)
        self.ops = <Op*>PyMem_Malloc(max(self.op_count, 1) * sizeof(Op))
        self.tagged = <Op*>PyMem_Malloc(max(self.tagged_count, 1) * sizeof(Op))
        self.absent = <Op*>PyMem_Malloc(max(self.absent_count, 1) * sizeof(Op))
        if self.ops == NULL or self.tagged == NULL or self.absent == NULL:
            raise MemoryError
        self.load(self.ops, fields)
        self.load(self.tagged, tagged)
        for i in range(self.tagged_count):
            if self.tagged[i].nullable and self.tagged[i].kind == KIND_STRUCT:
                self.tagged[i].nullable = NULLABLE_IN_TAG
        self.load(self.absent, tuple([(name, 0, 0, False, False, 0, None) for name, _ in absent]))
        for i in range(self.absent_count):
            self.absent[i].ignorable = absent[i][1]
        self.minimum = 1 if flexible else 0
        for i in range(self.op_count):
            self.minimum += smallest(&self.ops[i])

    cdef int load(self, Op* ops, tuple rows) except -1:
        cdef Py_ssize_t i, position
        cdef Op* op
        for i in range(len(rows)):
            name, kind, item, nullable, compact, tag, child = rows[i]
            op = &ops[i]
            position = self.layout.positions[name]
            op.kind = kind
            op.item = item
            op.nullable = nullable
            op.compact = compact
            op.tag = tag
            op.ignorable = False
            op.offset = self.layout.offsets[position]
            op.default_kind = self.layout.kinds[position]
            op.default = <PyObject*>self.layout.defaults[position]
            op.name = <PyObject*>self.layout.names[position]
            op.plan = NULL if child is None else <PyObject*>child
            op.item_minimum = 0
            if op.kind == KIND_ARRAY:
                op.item_minimum = max(1, (<Plan>child).minimum if child is not None else kind_minimum(op.item, compact))
        return 0

    def __dealloc__(self):
        PyMem_Free(self.ops)
        PyMem_Free(self.tagged)
        PyMem_Free(self.absent)


cdef Py_ssize_t kind_minimum(int kind, bint compact) noexcept:
    """The least number of bytes that a value takes; a nullable one may be shorter, see `smallest`."""
    if kind == KIND_BOOL or kind == KIND_INT8:
        return 1
    if kind == KIND_INT16 or kind == KIND_UINT16:
        return 2
    if kind == KIND_INT32 or kind == KIND_UINT32:
        return 4
    if kind == KIND_INT64 or kind == KIND_FLOAT64:
        return 8
    if kind == KIND_UUID:
        return 16
    if compact:
        return 1
    return 2 if kind == KIND_STRING else 4


cdef Py_ssize_t smallest(const Op* op):
    if op.kind != KIND_STRUCT:
        return kind_minimum(op.kind, op.compact)
    return 1 if op.nullable else (<Plan>op.plan).minimum
