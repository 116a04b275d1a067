"""Arrays that occur more than once in an answer as the same list object: encoded once, then copied.

DescribeConfigs of thousands of topics is such an answer.  Only the position of the bytes in the buffer is remembered,
so `forget` is called after each piece, when they leave it.
"""

from cpython.object cimport PyObject

from kbroker._fast.base.growable cimport Growable, growable_reserve, put_bytes
from kbroker._fast.wire.structs cimport Op

cdef enum:
    REMEMBERED = 4
    LEAST_BYTES = 128


cdef struct Repeat:
    const Op* op
    PyObject* items
    Py_ssize_t start
    Py_ssize_t size


cdef struct Repeats:
    int next
    Repeat known[REMEMBERED]


cdef inline void forget(Repeats* self) noexcept:
    for i in range(REMEMBERED):
        self.known[i].items = NULL


cdef inline Py_ssize_t repeat(Repeats* self, Growable* out, const Op* op, PyObject* items) except -1:
    """Copy what the same list became in the same field; how many bytes, 0 where it is not known."""
    cdef Repeat* known
    for i in range(REMEMBERED):
        known = &self.known[i]
        if known.items == items and known.op == op:
            growable_reserve(out, known.size)
            put_bytes(out, out.data + known.start, known.size)
            return known.size
    return 0


cdef inline void remember(Repeats* self, const Growable* out, const Op* op, PyObject* items, Py_ssize_t start) noexcept:
    """What stands in the buffer from `start` on."""
    cdef Repeat* place
    if out.size - start < LEAST_BYTES:
        return
    place = &self.known[self.next]
    self.next = (self.next + 1) % REMEMBERED
    place.op, place.items, place.start, place.size = op, items, start, out.size - start
