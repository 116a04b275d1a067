"""Zigzag varints as Python functions, for code that meets few of them (internal records, tests, tools).

Seven bits a byte, low bits first, the sign folded into bit 0: 0, -1, 1, -2 become 0, 1, 2, 3.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.base.cursor cimport CURSOR_VARINT_TOO_LONG, Cursor, cursor_init, cursor_varint, cursor_varlong


cdef object _read(buffer, Py_ssize_t pos, bint is_long):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef int64_t value
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if pos < 0 or pos > view.len:
            raise ValueError(f"position {pos} is outside of a buffer of {view.len} bytes")
        cursor_init(&cursor, <const uint8_t*>view.buf + pos, view.len - pos)
        value = cursor_varlong(&cursor) if is_long else cursor_varint(&cursor)
        if cursor.fault == CURSOR_VARINT_TOO_LONG:
            raise ValueError(f"the varint at position {pos} is too long")
        if cursor.fault:
            raise ValueError(f"the varint at position {pos} ends past the buffer")
        return value, cursor.position - <const uint8_t*>view.buf
    finally:
        PyBuffer_Release(&view)


def read_varint(buffer, Py_ssize_t pos=0):
    """(value, next position) of a 32-bit varint.  ValueError when it is cut off or too long."""
    return _read(buffer, pos, False)


def read_varlong(buffer, Py_ssize_t pos=0):
    """(value, next position) of a 64-bit varint.  ValueError when it is cut off or too long."""
    return _read(buffer, pos, True)


def encode_varint(int64_t value):
    """The bytes of a varint of 32 or 64 bits: both are written alike."""
    cdef uint8_t[MAX_VARLONG_BYTES] out
    cdef Py_ssize_t size = put_varlong(out, value)
    return (<char*>out)[:size]


def varint_size(int64_t value):
    """How many bytes `encode_varint(value)` takes."""
    return varlong_size(value)
