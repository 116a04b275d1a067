"""What C asks of Python values, by borrowed references: the encoder counts none."""

from cpython.object cimport PyObject


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
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


cdef inline bint is_sequence(PyObject* value) noexcept:
    return value != NULL and (PyList_Check(value) or PyTuple_Check(value))
