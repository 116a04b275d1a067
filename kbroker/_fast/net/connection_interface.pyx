"""What a connection is for its parts, for the requests under way on it, and for what serves several connections.

Each of them knows this and no more of it, so that they can be made and tested without a connection.
"""


cdef class ConnectionInterface:
    """`last_active`: when bytes came or went last, in monotonic seconds."""

    # For its socket

    cdef int opened(self, object socket) except -1:
        """The socket is there; before anything else."""
        raise NotImplementedError

    cdef object room(self):
        """Where the next bytes of requests go: an object with a writable buffer, which is never empty."""
        raise NotImplementedError

    cdef int received(self, Py_ssize_t size) except -1:
        """The loop has read so many bytes into `room`; 0: there are none for now, so the buffer can be given back."""
        raise NotImplementedError

    cdef bint end_of_requests(self) except -1:
        """The client has ended its side of the stream.  Returns whether answers are still to be sent; if not, the
        connection has been closed here."""
        raise NotImplementedError

    cdef int lost(self, object error) except -1:
        """The socket is gone, `error` says why; None: it was closed.  The last call of it."""
        raise NotImplementedError

    # For its frame reader and its answers

    cdef int memory_came(self) except -1:
        """Reading goes on after a wait for memory."""
        raise NotImplementedError

    cdef int resume(self) except -1:
        """Send what is queued as far as the socket takes it, then serve the requests behind it."""
        raise NotImplementedError

    def close(self, str reason="closed") -> None:
        """Close now; what is queued for the client and the kernel does not take at once is dropped."""
        raise NotImplementedError

    # For what serves several connections

    cdef ssize_t look(self) except -2:
        """Reads the socket without asking the loop, and serves the requests: the number of bytes read, 0 when there are
        none, -1 when the socket must not be read now.

        Not while a frame is unfinished, and not for the end of the stream or errors: the loop will see them.
        """
        raise NotImplementedError

    cdef bint is_busy(self) noexcept:
        """Whether a request is under way or an answer not yet with the kernel."""
        return False

    cdef int finish(self, object frame) except -1:
        """The answer to the deferred request (`FlushBatch.add_request`); None: the request is then handled by
        itself."""
        raise NotImplementedError

    cdef int give_up(self, object error) except -1:
        """The deferred request failed."""
        raise NotImplementedError

    # For requests

    cdef bint awaits(self, object ctx) noexcept:
        """Whether this request's answer would still reach the client."""
        return False

    cdef int conclude(self, object ctx, object response, bint encoded) except -1:
        """Answer a request that waited, and go on; ignored when the connection is gone."""
        raise NotImplementedError

    cdef int failed(self, object ctx, object error) except -1:
        """A handler failed: what it has done is unknown, so the connection ends."""
        raise NotImplementedError
