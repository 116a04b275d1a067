"""How far the whole batches of a frame reach, from their headers alone: so that the next fetch can be sent before this
one is decoded."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from kbroker._fast.records.batch_info cimport HEADER_OK, Header, parse_header
from kbroker._fast.records.layout cimport LOG_OVERHEAD_BYTES


def batch_span(buffer):
    """(end of the whole batches in bytes, their number, offset after the last, -1 without any).

    Stops, without a word, at anything that is no whole batch of format 2: the decoder says what it is.
    """
    cdef Py_buffer view
    cdef Header header
    cdef Py_ssize_t position = 0, count = 0
    cdef int64_t following = -1
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            while parse_header(<const uint8_t*>view.buf + position, view.len - position, &header) == HEADER_OK:
                if header.last_offset_delta < 0 or header.base_offset < 0:
                    break
                if header.base_offset > INT64_MAX - header.last_offset_delta - 1:
                    break
                following = header.base_offset + header.last_offset_delta + 1
                position += header.batch_length + <Py_ssize_t>LOG_OVERHEAD_BYTES
                count += 1
    finally:
        PyBuffer_Release(&view)
    return position, count, following
