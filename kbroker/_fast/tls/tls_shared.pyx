"""What the TLS sockets of one loop share: memory to receive and to encrypt in, and threads that make handshakes; and
how they send.

Where the kernel has TLS (`TlsShared.kernel`), it gets the keys of a connection when the first range of a file is to be
sent: from then on answers leave as they do on a plain listener, and OpenSSL only reads.  What the kernel does not take
(a suite, TLS 1.2) OpenSSL goes on with.
"""

import os
from collections import deque

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.types cimport off_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.tls.kernel_tls cimport KernelSide, forget_secret, say_new_keys, take_over
from kbroker._fast.net.send_threads cimport SendThreads
from kbroker._fast.net.socket_part cimport NO_ROOM, SocketPart, send_as_is, send_file
from kbroker._fast.tls.tls_library cimport tls_calls
from kbroker._fast.tls.tls_stream cimport (
    GOES_ON,
    SendRoom,
    TlsStream,
    end_stream,
    send_held,
    send_pieces,
    send_range,
    shake_hands,
)

cdef extern from "<sys/resource.h>" nogil:
    int setpriority(int which, int who, int priority)
    int PRIO_PROCESS

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_gettid

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)
    int getpid()

cdef enum:
    NICE = 5
    # Above this other threads may run while it is encrypted.
    RELEASE_GIL_BYTES = 65536
    # A thread's waking up is worth it from here on: encryption takes longer than a plain send.
    LEND_BYTES = 65536
    STACK_BYTES = 524288


cdef ssize_t shake_work(void* what, int out_fd, int fd, off_t position, size_t size) noexcept nogil:
    # Of this thread alone: where processors are short the loop goes first, and those who are in before those who come.
    if syscall(SYS_gettid) != getpid():
        setpriority(PRIO_PROCESS, 0, NICE)
    shake_hands(<TlsStream*> what)
    return 0


cdef ssize_t range_work(void* what, int out_fd, int fd, off_t position, size_t size) noexcept nogil:
    cdef Loan* loan = <Loan*> what
    return send_range(loan.stream, out_fd, loan.room, fd, position, size)


cdef class TlsShared:
    """For the sockets of one loop: memory to receive and to encrypt in, and `threads` that make handshakes.

    A handshake that is not through within `deadline_seconds` is over.  The loop reads into this object.  `kernel`: how
    the kernel encrypts (`security.tls.kernel.KernelTls`), None: not at all; `kernel_count`: for how many connections.
    """

    def __cinit__(self, *arguments, **named):
        self.incoming = NULL
        self.own = NULL

    def __init__(self, loop, int threads, double deadline_seconds=30.0, kernel=None):
        self.loop = loop
        self.kernel = kernel
        self.threads = SendThreads(loop, threads, STACK_BYTES)
        self.deadline_seconds = deadline_seconds
        self.waiting = deque()
        self.incoming = <char*> malloc(INCOMING_BYTES)
        self.own = <SendRoom*> malloc(sizeof(SendRoom))
        if self.incoming == NULL or self.own == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int index
        free(self.incoming)
        free(self.own)
        for index in range(self.spare_count):
            free(self.spare[index])

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.incoming, INCOMING_BYTES, 0, flags)

    cdef SendRoom* take_room(self) noexcept:
        if self.spare_count > 0:
            self.spare_count -= 1
            return self.spare[self.spare_count]
        return <SendRoom*> malloc(sizeof(SendRoom))

    cdef void give_back(self, SendRoom* room) noexcept:
        if self.spare_count < SPARE_ROOMS:
            self.spare[self.spare_count] = room
            self.spare_count += 1
        else:
            free(room)

    cdef int shake(self, StreamSocket socket) except -1:
        """Have a thread go on with a handshake, as soon as one is free."""
        if self.waiting or not self.threads.give(socket, -1, None, 0, 0, shake_work, &socket.stream):
            self.waiting.append(socket)
            if self.threads.outstanding == 0:
                # There are no threads.
                self.loop.call_soon(self._do_one)
        return 0

    def _do_one(self) -> None:
        cdef StreamSocket socket
        if self.waiting and self.threads.outstanding == 0:
            socket = self.waiting.popleft()
            with nogil:
                shake_hands(&socket.stream)
            socket.helped(0)

    cdef int next(self) except -1:
        """A thread is free."""
        cdef StreamSocket socket
        while self.waiting:
            socket = self.waiting[0]
            if not self.threads.give(socket, -1, None, 0, 0, shake_work, &socket.stream):
                if self.threads.outstanding == 0:
                    self.loop.call_soon(self._do_one)
                break
            self.waiting.popleft()
        return 0

    def close(self) -> None:
        """End the threads, after the last connection was closed."""
        self.threads.close()
        self.waiting.clear()


cdef class StreamSocket(SocketPart):
    """The writing half of a socket part under TLS.  `helped` is called when a thread is through with the session."""

    def __cinit__(self, *arguments):
        self.lends = True
        self.writer_fd = -1

    def __dealloc__(self):
        end_stream(&self.stream)
        free(self.loan.room)

    @property
    def version(self) -> str:
        """`TLSv1.3`, say."""
        return tls_calls.version_of(self.stream.session).decode("ascii")

    @property
    def cipher(self) -> str:
        """OpenSSL's name of the cipher suite."""
        return self._suite().decode("ascii")

    cdef int _wait_for_room(self, go_on) except -1:
        """Have `go_on` called while there is room in the socket, until `_stop_waiting`."""
        if self.writer_fd < 0:
            # The loop refuses to watch a transport's own descriptor.
            self.writer_fd = os.dup(self.fd)
            self.shared.loop.add_writer(self.writer_fd, go_on)
        return 0

    cdef int _stop_waiting(self) except -1:
        if self.writer_fd >= 0:
            self.shared.loop.remove_writer(self.writer_fd)
            os.close(self.writer_fd)
            self.writer_fd = -1
        return 0

    cdef bytes _suite(self):
        return tls_calls.name_of_cipher(tls_calls.cipher_of(self.stream.session))

    cdef bint _in_kernel(self) except -1:
        """Whether the kernel encrypts what is sent now.

        It begins here where it can, when all that OpenSSL has encrypted is with it.
        """
        cdef TlsStream* stream = &self.stream
        cdef KernelSide* side = &stream.kernel
        cdef bytes keys
        if side.taken_over or side.secret_bytes == 0 or side.owes_keys or stream.progress != GOES_ON:
            return side.taken_over
        if not send_held(stream, self.fd):
            raise OSError(errno, "send failed")
        self.held_bytes = stream.held.end - stream.held.start
        if self.held_bytes > 0:
            return False
        secret = PyBytes_FromStringAndSize(side.secret, side.secret_bytes)
        keys = self.shared.kernel.crypto_info(self._suite(), secret, side.records)
        if keys is not None:
            side.taken_over = take_over(self.fd, PyBytes_AS_STRING(keys), <unsigned int> PyBytes_GET_SIZE(keys), False)
        if side.taken_over:
            self.shared.kernel_count += 1
        if not side.taken_over or not self.shared.kernel.renews_keys:
            forget_secret(side)
        return side.taken_over

    cdef bint _give_keys(self) except -1:
        """Tell the client of new keys, as it has asked for, and use them; False: when there is room in the socket."""
        cdef KernelSide* side = &self.stream.kernel
        cdef bytes secret, keys
        cdef bytes suite = self._suite()
        if not say_new_keys(self.fd):
            if errno == EAGAIN:
                return False
            raise OSError(errno, "send failed")
        secret = self.shared.kernel.next_secret(suite, PyBytes_FromStringAndSize(side.secret, side.secret_bytes))
        keys = self.shared.kernel.crypto_info(suite, secret, 0)
        if not take_over(self.fd, PyBytes_AS_STRING(keys), <unsigned int> PyBytes_GET_SIZE(keys), True):
            raise OSError(errno, "the kernel takes no new keys")
        memcpy(side.secret, PyBytes_AS_STRING(secret), side.secret_bytes)
        side.owes_keys = False
        return True

    cdef ssize_t write(self, iovec* pieces, int count, bint more) except? -3:
        cdef ssize_t taken
        cdef size_t size = 0
        cdef int index
        if CHECKED:
            assert not self.with_thread, "a thread has the session"
        if self.stream.kernel.taken_over:
            if self.stream.kernel.owes_keys and self.shared.kernel.renews_keys and not self._give_keys():
                return NO_ROOM
            return send_as_is(self.fd, pieces, count, more)
        for index in range(count):
            size += pieces[index].iov_len
        if size > RELEASE_GIL_BYTES:
            with nogil:
                taken = send_pieces(&self.stream, self.fd, self.shared.own, pieces, count, more)
        else:
            taken = send_pieces(&self.stream, self.fd, self.shared.own, pieces, count, more)
        self.held_bytes = self.stream.held.end - self.stream.held.start
        return taken

    cdef ssize_t write_region(self, FileRegion region, off_t position, size_t size) except? -3:
        cdef int fd = region.fd
        cdef ssize_t taken
        if CHECKED:
            assert not self.with_thread, "a thread has the session"
        if self._in_kernel():
            if self.stream.kernel.owes_keys and self.shared.kernel.renews_keys and not self._give_keys():
                return NO_ROOM
            return send_file(self.fd, region, position, size)
        if size > RELEASE_GIL_BYTES:
            with nogil:
                taken = send_range(&self.stream, self.fd, self.shared.own, fd, position, size)
        else:
            taken = send_range(&self.stream, self.fd, self.shared.own, fd, position, size)
        self.held_bytes = self.stream.held.end - self.stream.held.start
        return taken

    cdef bint lend(self, SendThreads threads, FileRegion region, off_t position, size_t size) except -1:
        if self._in_kernel():
            if size >= threads.least_bytes and not self.stream.kernel.owes_keys:
                self.lent = threads.take(self, self.fd, region, position, size, NULL, NULL)
            return self.lent
        if size < LEND_BYTES or size < threads.least_bytes // 4 or self.stream.progress != GOES_ON:
            return False
        self.loan.stream = &self.stream
        self.loan.room = self.shared.take_room()
        if self.loan.room == NULL:
            return False
        if threads.take(self, self.fd, region, position, size, range_work, &self.loan):
            self.with_thread = True
            return True
        self._end_loan()
        return False

    cdef void _end_loan(self) noexcept:
        self.shared.give_back(self.loan.room)
        self.loan.room = NULL

    cdef bint drain(self) except -1:
        if not send_held(&self.stream, self.fd):
            raise OSError(errno, "send failed")
        self.held_bytes = self.stream.held.end - self.stream.held.start
        return self.held_bytes == 0
