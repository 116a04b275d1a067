"""The send side of a connection: answers leave as far as the socket takes them, the rest when there is room again.

`send_state` says what answers wait for (`connection_states`).
"""

import os

from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.net.connection_states cimport (
    SEND_CLEAR,
    SEND_FULL,
    SEND_LENT,
    SEND_YIELDED,
    SendState,
    may_send_next,
)
from kbroker._fast.net.receiver cimport Receiver
from kbroker._fast.net.sender cimport Sender

from kbroker._fast.net.sender import FileShrunkError


cdef class Responder(Receiver):
    def __cinit__(self):
        self.writer_fd = -1

    cdef int _process(self) except -1:
        """Go on with the requests behind those that were answered."""
        raise NotImplementedError

    cdef bint awaits(self, object ctx) noexcept:
        """Whether this request's answer would still reach the client."""
        return False

    cdef int conclude(self, object ctx, object response, bint encoded) except -1:
        """Answer a request that waited, and go on; ignored when the connection is gone."""
        raise NotImplementedError

    cdef int failed(self, object ctx, object error) except -1:
        """A handler failed: what it has done is unknown, so the connection ends."""
        raise NotImplementedError

    cdef bint _begin(self, object ctx, object coroutine) except -1:
        """Run a handler up to its first wait, and have the owner run the rest; most never wait.

        Whether the answer comes later.
        """
        cdef object response
        try:
            response = coroutine.send(None)
        except StopIteration as stop:
            ctx.take(stop.value)
            return self.awaits(ctx)
        self.endpoint.owner.spawn(ctx, coroutine, response)
        return True

    cdef int _flush(self) except -1:
        """Send what is queued; while the socket is full the loop watches a duplicate of it for room."""
        cdef int outcome
        cdef Sender sender = self.sender
        if self.closed or (
                self.send_state == SEND_CLEAR and sender.queued_bytes == 0 and sender.head == len(sender.parts)):
            return 0
        try:
            outcome = self.sender.flush(FLUSH_BYTES, self)
            if outcome == 0 and self.writer_fd < 0:
                # The loop refuses to watch a transport's own descriptor.
                self.writer_fd = os.dup(self.sender.fd)
                self.endpoint.loop.add_writer(self.writer_fd, self.resume_sending)
        except OSError as error:
            if isinstance(error, FileShrunkError):
                self.endpoint.owner.file_shrunk(error.fd)
            (<object> self).close(f"lost: {error}")
            return 0
        if outcome == 1:
            self._unwatch()
            self._send_next(SEND_CLEAR)
        elif outcome == 0:
            self._send_next(SEND_FULL)
        elif outcome == 2:
            self._send_next(SEND_YIELDED)
            if self.writer_fd < 0:
                self.endpoint.loop.call_soon(self.resume_sending)
        else:
            self._send_next(SEND_LENT)
            self._unwatch()
            if outcome == 3:
                self.endpoint.owner.read_cold(self, self.sender.cold_stretches())
        return 0

    def helped(self, Py_ssize_t sent=0) -> None:
        """A thread is through: a cold stretch is in the page cache or cannot be read, or `sent` bytes left: go on."""
        self._send_next(SEND_YIELDED)
        if not self.closed:
            self.sender.helped(sent)
            self.resume_sending()

    def resume_sending(self) -> None:
        if self.closed or self.send_state == SEND_LENT:
            return
        self.last_active = now_ns() * 1e-9
        self._flush()
        if not self.closed and self.send_state == SEND_CLEAR:
            self._process()

    cdef int _send_next(self, SendState then) except -1:
        assert may_send_next(self.send_state, then), (self.send_state, then)
        self.send_state = then
        return 0

    cdef int _unwatch(self) except -1:
        if self.writer_fd >= 0:
            self.endpoint.loop.remove_writer(self.writer_fd)
            os.close(self.writer_fd)
            self.writer_fd = -1

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.sender.queued_bytes if self.sender is not None else 0

    @property
    def listener_name(self) -> str:
        return self.endpoint.listener_name
