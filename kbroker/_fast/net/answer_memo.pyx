"""A memo of encoded answers, sent again to equal requests: clients repeat Metadata for as long as they live.

The key of an answer is the API and its version, the address that the client dialled (the brokers' addresses in the
answer may depend on it), every byte of the request behind its header, and what the client may see (`Gate.view`).
Handlers say which of their answers may be kept (`RequestContext.cacheable`), and `forget` is called when the state
behind these answers changes.  A bounded number of small answers is kept.  Large ones are not: the whole list of a large
cluster is seldom asked for, and encoding it is the smaller part of its cost.

An answer may be kept for one client although its request has an effect each time, as a heartbeat keeps a member's
session alive.  The `AnswerRenewal` of such an answer says whether the answer still holds, and carries out that effect.
These answers are kept apart from the others, as there may be one for each member.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from kbroker._fast.base.big_endian cimport kb_store32

cdef enum:
    MAX_ANSWERS = 1024
    MAX_REPETITIONS = 32768
    MAX_REQUEST_BYTES = 1024
    MAX_ANSWER_BYTES = 8192
    # The correlation id stands behind the frame's length.
    CORRELATION_ID_AT = 4


cdef class Validity:
    """Whether the state that some answers were made from still holds; it ends once, for all of these answers."""

    def __cinit__(self):
        self.holds = True

    def end(self) -> None:
        """It has changed."""
        self.holds = False


cdef class AnswerRenewal:
    """What an equal request does, and how long its answer stands.

    `validity` holds, `deadline` (`armed`, `move(seconds)`) runs and is moved on by `seconds`, and the request is one of
    `client_id` from `client_host`."""

    def __init__(self, Validity validity not None, deadline, double seconds, client_id, client_host):
        self.validity = validity
        self.deadline = deadline
        self.seconds = seconds
        self.client_id = client_id
        self.client_host = client_host

    cdef bint renew(self, object client_id, object connection) except -1:
        """Whether the answer is good for this request, which has then done what it should."""
        if not self.validity.holds or self.client_id != client_id:
            return False
        if self.client_host != connection.peer_host or not self.deadline.armed:
            return False
        self.deadline.move(self.seconds)
        return True


cdef class AnswerMemo:
    """The cacheable answers of one listener."""

    def __cinit__(self):
        self.answers = {}
        self.repetitions = {}

    def __len__(self) -> int:
        return len(self.answers) + len(self.repetitions)

    def forget(self, *change) -> None:
        """Something changed: every answer is made anew.  Takes what an announcement of changes tells."""
        self.answers.clear()
        self.repetitions.clear()

    cdef tuple key(self, object view, int api_key, int api_version, tuple end, const char* body, Py_ssize_t size):
        """What the answer to this request is known by; None when it is not kept."""
        if size > MAX_REQUEST_BYTES:
            return None
        return (api_key << 16 | api_version, end, PyBytes_FromStringAndSize(body, size), view)

    cdef bytes recall(self, tuple key, int correlation_id, object client_id, object connection):
        """The frame that answers such a request, for this correlation id; None when it is not known."""
        cdef bytes known, frame
        cdef tuple repeated
        known = self.answers.get(key)
        if known is None:
            repeated = self.repetitions.get(key)
            if repeated is None:
                return None
            if not (<AnswerRenewal> repeated[1]).renew(client_id, connection):
                del self.repetitions[key]
                return None
            known = <bytes> repeated[0]
        frame = PyBytes_FromStringAndSize(PyBytes_AS_STRING(known), PyBytes_GET_SIZE(known))
        kb_store32(<uint8_t*> PyBytes_AS_STRING(frame) + CORRELATION_ID_AT, <unsigned int> correlation_id)
        return frame

    cdef int keep(self, tuple key, bytes frame, AnswerRenewal renewal) except -1:
        if PyBytes_GET_SIZE(frame) > MAX_ANSWER_BYTES:
            return 0
        if renewal is not None:
            if len(self.repetitions) >= MAX_REPETITIONS:
                self.repetitions.clear()
            self.repetitions[key] = (frame, renewal)
            return 0
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.clear()
        self.answers[key] = frame
        return 0
