from cpython.object cimport PyObject


cdef class Disposal:
    cdef list lists

    cdef int take_lists(self, PyObject* item) except -1
    cdef int take_from(self, PyObject* value) except -1
