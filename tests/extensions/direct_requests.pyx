"""Requests that are answered from their bytes, alone or together."""

import struct

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.net.direct cimport MOST_REQUESTS, DirectAnswers, DirectRequest


def ask(DirectAnswers direct not None, services, int version, int correlation_id, request, Gate gate=None):
    """The answer as `DirectAnswers.answer` gives it; `request` is a writable buffer."""
    cdef Py_buffer view
    PyObject_GetBuffer(request, &view, PyBUF_WRITABLE)
    try:
        return direct.answer(services, version, correlation_id, <uint8_t*> view.buf, view.len, gate)
    finally:
        PyBuffer_Release(&view)


def answer_together(DirectAnswers direct not None, services, requests, HelperPool helper_pool=None, Gate gate=None):
    """The answers, and None for what the handler has to answer: `requests` are (version, correlation_id, writable
    buffer)."""
    cdef DirectRequest[MOST_REQUESTS] asked
    cdef Py_buffer[MOST_REQUESTS] views
    cdef int held = 0
    cdef int index
    if len(requests) > MOST_REQUESTS:
        raise ValueError(f"{len(requests)} requests are more than {MOST_REQUESTS}")
    try:
        for version, correlation_id, request in requests:
            PyObject_GetBuffer(request, &views[held], PyBUF_WRITABLE)
            asked[held].data = <uint8_t*> views[held].buf
            asked[held].size = views[held].len
            asked[held].gate = <void*> gate
            held += 1
            asked[held - 1].version = version
            asked[held - 1].correlation_id = correlation_id
        return direct.answer_all(services, asked, held, HelperPool(0) if helper_pool is None else helper_pool)
    finally:
        for index in range(held):
            PyBuffer_Release(&views[index])


cdef class EchoesTogether(DirectAnswers):
    """Answers each request with its body, together where they come together; `amid()` is called between reading the
    requests that came together and writing their answers."""

    cdef object amid

    def __init__(self, amid):
        self.amid = amid

    cdef bint may_wait(self, const DirectRequest* asked) noexcept:
        return True

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                       Gate gate):
        return struct.pack(">ii", 4 + size, correlation_id) + data[:size]

    cdef list answer_all(self, object services, const DirectRequest* asked, int count, HelperPool helper_pool):
        self.amid()
        return DirectAnswers.answer_all(self, services, asked, count, helper_pool)
