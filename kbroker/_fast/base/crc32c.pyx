"""CRC-32C, the checksum of v2 record batches and of producer snapshots.

`crc32c(buffer, value)` continues from `value`, so a checksum can be taken in pieces.  The work is in
`crc32c_impl.h`; `HARDWARE` says whether this machine's CRC instruction is used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32c_impl.h" nogil:
    int kb_crc_start()
    uint32_t kb_crc32c(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t kb_crc32c_portable(uint32_t crc, const uint8_t* data, size_t size)


HARDWARE = bool(kb_crc_start())

# From this size on the work outlasts the cost of handing the GIL over and taking it back.
cdef enum:
    RELEASE_GIL_BYTES = 262144


cdef uint32_t crc32c_update(uint32_t value, const uint8_t* data, size_t size) noexcept nogil:
    return kb_crc32c(value, data, size)


def crc32c(buffer, uint32_t value=0):
    """The CRC-32C of `buffer`, continued from `value`."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len >= RELEASE_GIL_BYTES:
            with nogil:
                crc = kb_crc32c(value, <const uint8_t*>view.buf, <size_t>view.len)
        else:
            crc = kb_crc32c(value, <const uint8_t*>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def crc32c_portable(buffer, uint32_t value=0):
    """The same by tables alone: what machines without the instruction run."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return kb_crc32c_portable(value, <const uint8_t*>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
