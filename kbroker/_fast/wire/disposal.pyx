"""Frees large trees of structs in pieces: 100,000 of them at once would hold the loop for tens of milliseconds.

Only what has no other reference is taken apart; what is shared merely loses a reference.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject

from kbroker._fast.wire.structs cimport Layout, Struct, layout_of, slot_of

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t i)
    Py_ssize_t Py_REFCNT(PyObject* value)
    bint PyList_CheckExact(PyObject* value)

cdef enum:
    # Shorter lists go with the struct that holds them, but for the long lists within.
    SHORT_LIST = 16


cdef class Disposal:
    """Takes what the list `items` holds apart, and empties it: `run` until it says True."""

    def __init__(self, list items):
        self.lists = [items]

    def run(self, Py_ssize_t items) -> bool:
        """Free so many items more; whether all is gone."""
        cdef list last
        while self.lists:
            last = self.lists[PyList_GET_SIZE(self.lists) - 1]
            if not last:
                self.lists.pop()
                continue
            if items <= 0:
                return False
            items -= 1
            item = last.pop()
            if Py_REFCNT(<PyObject*>item) == 1:
                self.take_lists(<PyObject*>item)
        return True

    cdef int take_lists(self, PyObject* item) except -1:
        """Keep the long lists within an item that is about to be freed."""
        cdef Layout layout
        cdef Py_ssize_t i
        if PyList_CheckExact(item):
            if PyList_GET_SIZE(<list>item) > SHORT_LIST:
                self.lists.append(<list>item)
                return 0
            for i in range(PyList_GET_SIZE(<list>item)):
                self.take_from(PyList_GET_ITEM(<list>item, i))
        elif isinstance(<object>item, Struct):
            layout = layout_of(<object>item)
            for i in range(layout.count):
                self.take_from(slot_of(<object>item, layout.offsets[i])[0])
        return 0

    cdef int take_from(self, PyObject* value) except -1:
        if value != NULL and Py_REFCNT(value) == 1 and (
            PyList_CheckExact(value) or isinstance(<object>value, Struct)
        ):
            self.take_lists(value)
        return 0
