"""The socket part of a connection under TLS.

What the loop has read is decrypted straight into the connection's room; answers are encrypted once, in records of
16 KB, and many records leave in one call.  A range of a file is read and encrypted portion by portion, by a thread
where the plain socket would lend it.  Handshakes are made by threads: their keys take as long as hundreds of requests.

While a thread has the session (`with_thread`), what comes is set aside (`arrived`), and nothing is read or written
here.  Invariant: bytes are buffered (`more`, `arrived`) only while reading is paused, while a thread has the session,
or until the loop's next turn.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uintptr_t
from libc.string cimport memmove

from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.socket_calls cimport socket_calls
from kbroker._fast.net.socket_part cimport SocketPart
from kbroker._fast.tls.tls_library cimport tls_calls
from kbroker._fast.tls.tls_shared cimport INCOMING_BYTES, StreamSocket, TlsShared
from kbroker._fast.tls.tls_stream cimport (
    BROKEN,
    ENDED,
    GOES_ON,
    HEADER_BYTES,
    MOST_RECORD_BYTES,
    begin_stream,
    collect,
    decrypt,
    drop,
    has_more,
    keep,
    offer,
    offer_pending,
    put_aside,
    say_goodbye,
    send_held,
)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT

cdef enum:
    # Above this other threads may run while it is encrypted or decrypted.
    RELEASE_GIL_BYTES = 65536
    # What a client may send in a handshake: the chain of its certificates is the most of it.
    MOST_HANDSHAKE_BYTES = 131072
    # Set aside while a thread has the session; then the client waits.
    MOST_ARRIVED_BYTES = 65536
    HANDSHAKE = 22


cdef str text_of(const char* reason):
    return "" if reason == NULL else reason.decode("ascii", "replace")


cdef class TlsSocket(StreamSocket):
    """See the module.

    `listener`: `context`, the address of the SSL_CTX for new sessions; `shaken(connection, socket)` is called after the
    handshake, and returns why the client is refused, or None; `refused(connection, kind, detail)` when the handshake
    has failed; `certificate_of(session)` gives what the client has shown.
    """

    def __init__(self, ConnectionInterface connection not None, TlsShared shared not None, listener):
        SocketPart.__init__(self, connection)
        self.shared = shared
        self.listener = listener
        self.reading = True
        if not begin_stream(&self.stream, <void*> <uintptr_t> listener.context):
            tls_calls.clear_errors()
            raise MemoryError()

    def __dealloc__(self):
        drop(&self.arrived)

    # What the loop calls

    def connection_made(self, transport) -> None:
        self.timer = self.shared.loop.call_later(self.shared.deadline_seconds, self._too_slow)
        self.shared.begun_count += 1
        SocketPart.connection_made(self, transport)

    def get_buffer(self, sizehint):
        return self.shared

    def buffer_updated(self, Py_ssize_t nbytes) -> None:
        if self.stream.shaken and not self.more and self.arrived.end == 0 and not self._is_blocked():
            if not offer(&self.stream, self.shared.incoming, nbytes):
                raise MemoryError()
            self._feed()
            return
        if self.connection is None:
            return
        if not keep(&self.arrived, self.shared.incoming, nbytes):
            raise MemoryError()
        if self.with_thread:
            if self.arrived.end > MOST_ARRIVED_BYTES:
                self.held_back = True
                self._set_reading()
        elif self.stream.shaken:
            self.go_on()
        else:
            self._shake()

    def eof_received(self) -> bool:
        if self.connection is None:
            return False
        if not self.stream.shaken and not self.with_thread:
            self._refuse("ended", "the client went away in the handshake")
            return False
        if self.requests_ended:
            # The client had said so before, and gets its answers.
            return True
        if self.with_thread or self.more or self.arrived.end > 0:
            self.at_end = True
            return True
        self.requests_ended = True
        return self.connection.end_of_requests()

    def connection_lost(self, error) -> None:
        self._stop_timer()
        self._stop_waiting()
        SocketPart.connection_lost(self, error)

    # Handshake

    cdef int _shake(self) except -1:
        """Go on with the handshake with the whole records that have come, so that what is left begins with one."""
        cdef const unsigned char* data = <const unsigned char*> self.arrived.data
        cdef Py_ssize_t size = self.arrived.end
        cdef Py_ssize_t whole = 0
        cdef Py_ssize_t record
        if size == 0 or self.with_thread:
            return 0
        if self.handshake_bytes == 0 and data[0] != HANDSHAKE:
            return self._refuse("plaintext", "the client does not speak TLS")
        while size - whole >= HEADER_BYTES:
            record = HEADER_BYTES + (data[whole + 3] << 8 | data[whole + 4])
            if record > MOST_RECORD_BYTES:
                # OpenSSL says what is wrong with it.
                whole = size
            elif whole + record > size:
                break
            else:
                whole += record
        if whole == 0:
            return 0
        if not keep(&self.stream.pending, self.arrived.data, whole):
            raise MemoryError()
        self.handshake_bytes += whole
        if whole == size:
            drop(&self.arrived)
        else:
            memmove(self.arrived.data, self.arrived.data + whole, size - whole)
            self.arrived.end = size - whole
        self.with_thread = True
        return self.shared.shake(self)

    def helped(self, Py_ssize_t taken) -> None:
        """A thread is through with the session."""
        cdef ConnectionInterface connection = self.connection
        cdef bint was_handshake = self.loan.room == NULL
        if self.lent:
            self.lent = False
            if connection is not None:
                (<object> connection).helped(taken)
            return
        self.with_thread = False
        self.held_bytes = self.stream.held.end - self.stream.held.start
        if was_handshake:
            self.shared.next()
        else:
            self._end_loan()
        if connection is None:
            return
        try:
            if was_handshake:
                self._after_handshake()
            else:
                (<object> connection).helped(taken)
            self._have_back()
        except Exception as error:
            # Others wait behind this one for what threads have done for them.
            connection.failed(None, error)

    cdef int _have_back(self) except -1:
        """Go on without a thread, unless there is another one."""
        if self.connection is not None and not self.with_thread:
            self.held_back = False
            self._set_reading()
            if self.stream.shaken:
                self.go_on()
        return 0

    cdef int _after_handshake(self) except -1:
        """Send what a handshake says; where the socket is full, its end waits for room, as if a thread had it."""
        cdef const char* reason
        cdef object why
        if self.stream.progress != GOES_ON:
            reason = tls_calls.reason_of(self.stream.error)
            return self._refuse("failed", text_of(reason) or "the client ended it")
        if not send_held(&self.stream, self.fd):
            return self._refuse("ended", "the client went away in the handshake")
        self.held_bytes = self.stream.held.end - self.stream.held.start
        self.with_thread = self.held_bytes > 0
        if self.with_thread:
            return self._wait_for_room(self._send_rest)
        self._stop_waiting()
        if self.stream.shaken:
            self._stop_timer()
            self.shared.done_count += 1
            self.shared.resumed_count += tls_calls.was_resumed(self.stream.session)
            self.more = self.stream.pending.end > 0
            if self.more and not offer_pending(&self.stream):
                raise MemoryError()
            why = self.listener.shaken(self.connection, self)
            return 0 if why is None else self._refuse("refused", why)
        if self.at_end:
            return self._refuse("ended", "the client went away in the handshake")
        # Requests that came with the last of a handshake are not counted: they count here only where it goes on.
        if self.handshake_bytes > MOST_HANDSHAKE_BYTES:
            return self._refuse("oversized", f"more than {MOST_HANDSHAKE_BYTES} bytes")
        return self._shake()

    def _send_rest(self) -> None:
        """There is room for more of what the handshake says."""
        cdef ConnectionInterface connection = self.connection
        try:
            if connection is None or self.closed:
                self._stop_waiting()
            else:
                self._after_handshake()
                self._have_back()
        except Exception as error:
            connection.failed(None, error)

    def _too_slow(self) -> None:
        self._refuse("slow", f"not through within {self.shared.deadline_seconds:g} seconds")

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    cdef int _refuse(self, str kind, str detail) except -1:
        cdef ConnectionInterface connection = self.connection
        if connection is not None:
            self._stop_timer()
            self.listener.refused(connection, kind, detail)
            (<object> connection).close(f"TLS handshake: {kind}")
        return 0

    # Reading

    cdef bint _is_blocked(self) noexcept:
        return self.paused or self.with_thread or self.closed or self.connection is None

    cdef int _set_reading(self) except -1:
        cdef bint wanted = not self.paused and not self.held_back
        if self.transport is not None and wanted != self.reading:
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        return 0

    def go_on(self) -> None:
        """Decrypt what was left or set aside."""
        if self._is_blocked() or not self.stream.shaken:
            return
        if self.arrived.end > 0:
            if not keep(&self.stream.pending, self.arrived.data, self.arrived.end):
                raise MemoryError()
            drop(&self.arrived)
            self.more = True
            if not offer_pending(&self.stream):
                raise MemoryError()
        if self.more or self.stream.progress != GOES_ON:
            self._feed()
        if self.at_end and self.connection is not None and not self.more and not self.with_thread:
            self.at_end = False
            self._end_requests()

    cdef int _feed(self) except -1:
        """Give what is offered to the connection, as long as that reads."""
        cdef Py_buffer view
        cdef object room
        cdef ssize_t got
        while not self._is_blocked() and self.stream.progress == GOES_ON:
            room = self.connection.room()
            PyObject_GetBuffer(room, &view, PyBUF_WRITABLE)
            try:
                if view.len > RELEASE_GIL_BYTES and self.stream.incoming_bytes > RELEASE_GIL_BYTES:
                    with nogil:
                        got = decrypt(&self.stream, <char*> view.buf, view.len)
                else:
                    got = decrypt(&self.stream, <char*> view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
            self._put_back()
            # Behind this the session may be a thread's, or gone.
            self.connection.received(got)
            if not self.more:
                break
        if self.stream.progress != GOES_ON and not self._is_blocked():
            return self._end()
        return 0

    cdef int _put_back(self) except -1:
        """Keep what the connection had no room for, and send what OpenSSL says by itself."""
        cdef const char* left = NULL
        cdef size_t size = 0
        if self.stream.kernel.owes_keys and self.stream.kernel.taken_over and not self.shared.kernel.renews_keys:
            self.keeps_keys = True
            self.stream.progress = BROKEN
        self.more = has_more(&self.stream, &left, &size)
        if size == 0:
            if self.stream.pending.end > 0:
                drop(&self.stream.pending)
        elif self.stream.pending.end > 0:
            # It is where it was read from.
            self.stream.pending.start = self.stream.pending.end - size
        elif not keep(&self.stream.pending, left, size) or not offer(&self.stream, self.stream.pending.data, size):
            raise MemoryError()
        if tls_calls.content(self.stream.outgoing, <char**> &left) > 0:
            if self.stream.kernel.taken_over:
                put_aside(&self.stream)
                return 0
            if not collect(&self.stream):
                raise MemoryError()
            # Where that fails, the next answer meets the reason.
            send_held(&self.stream, self.fd)
            self.held_bytes = self.stream.held.end - self.stream.held.start
        return 0

    cdef int _end(self) except -1:
        """The client has ended its side, or what it sends makes no sense."""
        cdef ConnectionInterface connection = self.connection
        cdef const char* reason
        if self.stream.progress == ENDED:
            return self._end_requests()
        if self.keeps_keys:
            (<object> connection).close("lost: TLS: the client wants new keys, which the kernel does not take")
            return 0
        reason = tls_calls.reason_of(self.stream.error)
        (<object> connection).close(f"lost: TLS: {text_of(reason)}")
        return 0

    cdef int _end_requests(self) except -1:
        """Tell the connection, once, that no more requests come."""
        if not self.requests_ended:
            self.requests_ended = True
            if not self.connection.end_of_requests():
                SocketPart.close(self)
        return 0

    cdef ssize_t look(self, char* data, size_t size) except? -3:
        cdef ssize_t got
        if (self.more or self.arrived.end > 0 or not self.stream.shaken or self.stream.progress != GOES_ON
                or self._is_blocked()):
            return -1
        got = socket_calls.recv(self.fd, self.shared.incoming, INCOMING_BYTES, MSG_DONTWAIT)
        if got <= 0:
            return 0 if got < 0 and errno == EAGAIN else -1
        if not offer(&self.stream, self.shared.incoming, got):
            raise MemoryError()
        got = decrypt(&self.stream, data, size)
        self._put_back()
        if self.more or self.stream.progress != GOES_ON:
            self.shared.loop.call_soon(self.go_on)
        return got

    cdef int pause_reading(self) except -1:
        self.paused = True
        return self._set_reading()

    cdef int resume_reading(self) except -1:
        self.paused = False
        self._set_reading()
        if self.more or self.arrived.end > 0 or self.stream.progress != GOES_ON:
            self.shared.loop.call_soon(self.go_on)
        return 0

    cdef int close(self) except -1:
        self.closed = True
        if self.transport is not None and not self.with_thread and not self.lent:
            say_goodbye(&self.stream, self.fd)
        return SocketPart.close(self)

    # What others ask

    @property
    def certificate(self) -> bytes | None:
        if self.shown is None and self.stream.shaken:
            self.shown = (self.listener.certificate_of(<uintptr_t> self.stream.session),)
        return None if self.shown is None else self.shown[0]
