"""Answers that equal requests get again, as they went out: clients repeat Metadata for as long as they live.

An answer is known by the API and its version, by the end of the connection that the client dialled, which brokers'
addresses may depend on, by every byte of the request behind its header, and by what its client may see (`Gate.view`).
Handlers say which of their answers last (`RequestContext.lasting`), and a change of what they say is announced with
`forget`.  A bounded number of small answers is kept: a large cluster's whole list is seldom asked for, and its
encoding is not what it costs.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from kbroker._fast.base.big_endian cimport kb_store32

cdef enum:
    MAX_ANSWERS = 1024
    MAX_REQUEST_BYTES = 1024
    MAX_ANSWER_BYTES = 8192
    # The correlation id stands behind the frame's length.
    CORRELATION_ID_AT = 4


cdef class AnswerMemo:
    """The lasting answers of one listener."""

    def __cinit__(self):
        self.answers = {}

    def __len__(self) -> int:
        return len(self.answers)

    def forget(self, *change) -> None:
        """Something changed: every answer is made anew.  Takes whatever an announcement of changes tells."""
        self.answers.clear()

    cdef tuple key(self, object view, int api_key, int api_version, tuple end, const char* body, Py_ssize_t size):
        """What the answer to this request is known by; None when it is not kept."""
        if size > MAX_REQUEST_BYTES:
            return None
        return (api_key << 16 | api_version, end, PyBytes_FromStringAndSize(body, size), view)

    cdef bytes recall(self, tuple key, int correlation_id):
        """The frame that answers such a request, for this correlation id; None when it is not known."""
        cdef bytes known, frame
        known = self.answers.get(key)
        if known is None:
            return None
        frame = PyBytes_FromStringAndSize(PyBytes_AS_STRING(known), PyBytes_GET_SIZE(known))
        kb_store32(<uint8_t*> PyBytes_AS_STRING(frame) + CORRELATION_ID_AT, <unsigned int> correlation_id)
        return frame

    cdef int keep(self, tuple key, bytes frame) except -1:
        if PyBytes_GET_SIZE(frame) > MAX_ANSWER_BYTES:
            return 0
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.clear()
        self.answers[key] = frame
        return 0
