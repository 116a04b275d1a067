from kbroker._fast.net.connection_states cimport SendState
from kbroker._fast.net.receiver cimport Receiver
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.sender cimport Sender

cdef enum:
    # Sent in one go before the loop looks after the others.
    FLUSH_BYTES = 4194304


cdef class Responder(Receiver):
    cdef readonly Endpoint endpoint
    cdef Sender sender
    cdef SendState send_state
    cdef int writer_fd
    cdef readonly double last_active

    cdef int _process(self) except -1
    cdef bint awaits(self, object ctx) noexcept
    cdef int conclude(self, object ctx, object response, bint encoded) except -1
    cdef int failed(self, object ctx, object error) except -1
    cdef bint _begin(self, object ctx, object coroutine) except -1
    cdef int _flush(self) except -1
    cdef int _send_next(self, SendState then) except -1
    cdef int _unwatch(self) except -1
