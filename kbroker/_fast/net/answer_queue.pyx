"""The answers of one connection: bytes and file regions, sent in their order, the rest when there is room.

Everything goes straight to the socket part: neighbouring byte strings leave in one call, a file region by `sendfile`
behind a `MSG_MORE` header, so that record batches pass from the page cache to the socket without entering this process.
Nothing here blocks: what the socket does not take stays queued, and the loop watches a duplicate of it for room.
`sendfile` would wait for the disk, so the pages of a region are probed first (`_fast/files/page_cache.pyx`).  A range
that is not in the page cache is passed to the endpoint's owner, which has a thread read it.

`state` says what answers wait for (`connection_states`).
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, EIO, errno
from libc.stdint cimport uint64_t
from posix.types cimport off_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.files.page_cache cimport is_resident, was_read
from kbroker._fast.net.answer_timer cimport AnswerTimer
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport (
    SEND_CLEAR,
    SEND_FULL,
    SEND_HELD,
    SEND_LENT,
    SEND_YIELDED,
    SendState,
    may_send_next,
)
from kbroker._fast.net.flush_batch cimport TURN_BYTES
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.socket_part cimport NO_ROOM, SocketPart

cdef enum:
    IOV_COUNT = 32
    # A connection that is closed sends no more than this before.
    LAST_BYTES = 4194304
    # One call sends no more, so that a fast reader of a large answer leaves the loop to others.
    SENDFILE_BYTES = 2097152
    # Of bytes, which are copied, and whose reader may get the processor as soon as there is something for it.
    SEND_BYTES = 1048576
    # So many times what a byte of a file counts in what is sent in one go.
    COPIED = 4
    # So much of what is queued behind a cold range is named with it.
    AHEAD_BYTES = 4194304
    # For so many ranges after a cold one, what is in memory is taken for what a thread has just read.
    CATCHING_UP = 32
    # What `_send_region` gives beside bytes.
    COLD = -4
    LENT = -5

# How an attempt to send ended.
cdef enum Outcome:
    ALL_SENT
    NO_MORE_ROOM
    TIME_IS_UP
    NOT_IN_MEMORY
    WITH_A_THREAD


class FileShrunkError(OSError):
    """A file region reaches past the end of its file `fd`: the log was truncated while the answer was being sent."""

    def __init__(self, fd, text):
        super().__init__(text)
        self.fd = fd


cdef class AnswerQueue:
    """What is to be sent on one socket."""

    def __cinit__(self, SocketPart socket not None, ConnectionInterface connection not None,
                  Endpoint endpoint not None):
        self.socket = socket
        self.connection = connection
        self.endpoint = endpoint
        self.parts = []
        self.times = AnswerTimer(endpoint.stats)
        self.writer_fd = -1

    cdef void add(self, object part):
        self.parts.append(part)
        if type(part) is bytes:
            self.queued_bytes += PyBytes_GET_SIZE(part)
        else:
            self.queued_bytes += (<FileRegion> part).size

    cdef int add_frame(self, list frame) except -1:
        """Queue the parts of one answer."""
        cdef object part
        for part in frame:
            self.add(part)
        return 0

    cdef int answered(self, int api_key, bint by_follower, uint64_t total_ns, uint64_t now) except -1:
        """What was queued last ends the answer to a request; nothing was for one that has none."""
        return self.times.begin(api_key, by_follower, total_ns, now, len(self.parts))

    cdef int hold(self) except -1:
        """What is queued leaves at the end of the loop's iteration."""
        return self._next(SEND_HELD)

    cdef int flush(self, uint64_t now) except -1:
        """Send what is queued, as far as it goes now; closes the connection when the client is gone.  `now`: 0 where
        the last answer has just been queued."""
        cdef int outcome
        if self.connection is None or (
                self.state == SEND_CLEAR and self.queued_bytes == 0 and self.head == len(self.parts)):
            return 0
        self.times.look(now)
        try:
            outcome = self._send(self.socket.lends, self.endpoint.flush_batch.most_now(TURN_BYTES))
            if outcome == NO_MORE_ROOM and self.writer_fd < 0:
                # The loop refuses to watch a transport's own descriptor.
                self.writer_fd = os.dup(self.socket.fd)
                self.endpoint.loop.add_writer(self.writer_fd, self.go_on)
        except OSError as error:
            if isinstance(error, FileShrunkError):
                self.endpoint.owner.file_shrunk(error.fd)
            (<object> self.connection).close(f"lost: {error}")
            return 0
        self.times.end(outcome == ALL_SENT, self.head)
        if CHECKED:
            self._check()
        if outcome == ALL_SENT:
            self._unwatch()
            self._next(SEND_CLEAR)
        elif outcome == NO_MORE_ROOM:
            self._next(SEND_FULL)
        elif outcome == TIME_IS_UP:
            self._next(SEND_YIELDED)
            if self.writer_fd < 0:
                self.endpoint.loop.call_soon(self.go_on)
        else:
            self._next(SEND_LENT)
            self._unwatch()
            if outcome == NOT_IN_MEMORY:
                self.endpoint.owner.read_cold(self.connection, self._cold_ranges())
        return 0

    cdef int _check(self) except -1:
        """Raises AssertionError unless the count of bytes is that of the parts that are left."""
        cdef Py_ssize_t left = -self.offset
        cdef object part
        for part in self.parts[self.head:]:
            left += PyBytes_GET_SIZE(part) if type(part) is bytes else (<FileRegion> part).size
        assert self.head <= len(self.parts), (self.head, len(self.parts))
        assert self.queued_bytes == left, (self.queued_bytes, left)
        return 0

    def go_on(self) -> None:
        """There is room in the socket, or time."""
        if self.connection is not None:
            self.connection.resume()

    cdef int close(self) except -1:
        """Send what the socket takes at once, and drop the rest.

        The requests before the one that ends the connection were served: their answers leave if they can.
        """
        self.endpoint.send_threads.forget(self.connection)
        self.connection = None
        self.times.look(0)
        try:
            self.times.end(self._send(False, LAST_BYTES) == ALL_SENT, self.head)
        except OSError:
            pass  # The client is gone: there is no reader for them.
        return self.drop()

    cdef int drop(self) except -1:
        """Nothing of it is sent any more."""
        self._clear()
        self.times.forget()
        return self._unwatch()

    cdef void _clear(self):
        self.parts.clear()
        self.head = 0
        self.offset = 0
        self.queued_bytes = 0

    cdef int _send(self, bint may_lend, Py_ssize_t most) except -1:
        """Send what the socket takes, until it is `most`: the `Outcome`.  OSError when the connection is broken."""
        cdef ssize_t sent
        cdef Py_ssize_t spent = 0
        cdef int weight
        if self.state == SEND_LENT:
            return WITH_A_THREAD
        if self.socket.held_bytes > 0 and not self.socket.drain():
            return NO_MORE_ROOM
        while self.head < len(self.parts):
            if spent >= most:
                return TIME_IS_UP
            weight = 1
            if type(self.parts[self.head]) is bytes:
                weight = COPIED
                sent = self._send_bytes()
            else:
                sent = self._send_region(<FileRegion> self.parts[self.head], may_lend)
            if sent == COLD:
                return NOT_IN_MEMORY
            if sent == LENT:
                return WITH_A_THREAD
            if sent < 0:
                if sent == NO_ROOM or errno == EAGAIN:
                    return NO_MORE_ROOM
                if errno == EINTR:
                    continue
                raise OSError(errno, "send failed")
            spent += sent * weight
            self.endpoint.flush_batch.note_sent(sent * weight)
            self._advance(sent)
        if self.socket.held_bytes > 0 and not self.socket.drain():
            return NO_MORE_ROOM
        self._clear()
        return ALL_SENT

    cdef ssize_t _send_bytes(self) except? -3:
        cdef iovec vector[IOV_COUNT]
        cdef object part
        cdef Py_ssize_t index = self.head
        cdef Py_ssize_t total = len(self.parts)
        cdef int count = 0
        cdef bint more = False
        cdef Py_ssize_t room = SEND_BYTES + self.offset
        while index < total and count < IOV_COUNT and room > 0:
            part = self.parts[index]
            if type(part) is not bytes:
                more = True
                break
            vector[count].iov_base = PyBytes_AS_STRING(part)
            vector[count].iov_len = min(room, PyBytes_GET_SIZE(part))
            room -= PyBytes_GET_SIZE(part)
            count += 1
            index += 1
        vector[0].iov_base = <char*> vector[0].iov_base + self.offset
        vector[0].iov_len -= self.offset
        return self.socket.write(vector, count, more)

    cdef list _cold_ranges(self):
        """The range that is not in the page cache, as (region, position, size), and the ranges that are queued behind
        it, up to AHEAD_BYTES."""
        cdef list found = [(self.cold_region, self.cold_position, self.cold_bytes)]
        cdef FileRegion region
        cdef off_t position = self.cold_position + <off_t> self.cold_bytes
        cdef Py_ssize_t size
        cdef Py_ssize_t room = AHEAD_BYTES
        cdef Py_ssize_t index
        for index in range(self.head, len(self.parts)):
            if type(self.parts[index]) is bytes:
                continue
            region = <FileRegion> self.parts[index]
            if index > self.head:
                position = region.position
            size = min(<Py_ssize_t> (region.position + region.size - position), room)
            if size > 0:
                found.append((region, position, size))
                room -= size
            if room <= 0:
                break
        return found

    cdef int helped(self, Py_ssize_t sent) except -1:
        """A thread has finished: it has read a cold range into the page cache, or failed to, or it has sent `sent`
        bytes.

        A range that was cold is sent without asking again whether it is in the page cache: the kernel may have dropped
        it, and the answer would never leave.  Where a thread could send nothing, the loop tries next and meets the
        reason.
        """
        self._next(SEND_YIELDED)
        if self.cold_region is not None:
            self.warm_from = self.cold_position
            self.warm_until = self.cold_position + self.cold_bytes
            self.cold_region = None
        elif sent > 0:
            self._advance(sent)
        else:
            self.keep = True
        return 0

    cdef ssize_t _send_region(self, FileRegion region, bint may_lend) except? -3:
        cdef off_t position = region.position + self.offset
        cdef size_t left = region.size - self.offset
        cdef int fd = region.fd
        cdef bint there
        cdef ssize_t sent
        if left == 0:
            return 0
        if left > SENDFILE_BYTES:
            left = SENDFILE_BYTES
        if not self.warm_from <= position < self.warm_until:
            if self.catching_up > 0:
                self.catching_up -= 1
                there = was_read(fd, position, left)
            else:
                there = is_resident(fd, position, left)
            if not there:
                self.catching_up = CATCHING_UP
                self.cold_region = region
                self.cold_position = position
                self.cold_bytes = left
                return COLD
            self.warm_from = position
            self.warm_until = position + <off_t> left
        if position + <off_t> left > self.warm_until:
            left = self.warm_until - position
        if may_lend and not self.keep and self.socket.lend(self.endpoint.send_threads, region, position, left):
            return LENT
        self.keep = False
        sent = self.socket.write_region(region, position, left)
        if sent == -1 and errno == EIO:
            # The disk, not the socket: what reads the range in its place finds out and reports it.
            self.warm_until = 0
            self.cold_region = region
            self.cold_position = region.position + self.offset
            self.cold_bytes = left
            return COLD
        if sent == 0:
            raise FileShrunkError(fd, f"{left} bytes at {position} are no longer in the file")
        return sent

    cdef void _advance(self, Py_ssize_t sent):
        cdef object part
        cdef Py_ssize_t size
        self.queued_bytes -= sent
        sent += self.offset
        while self.head < len(self.parts):
            part = self.parts[self.head]
            size = PyBytes_GET_SIZE(part) if type(part) is bytes else (<FileRegion> part).size
            if sent < size:
                break
            sent -= size
            self.parts[self.head] = None
            self.warm_until = 0
            self.head += 1
        self.offset = sent

    cdef int _next(self, SendState then) except -1:
        assert may_send_next(self.state, then), (self.state, then)
        self.state = then
        return 0

    cdef int _unwatch(self) except -1:
        if self.writer_fd >= 0:
            self.endpoint.loop.remove_writer(self.writer_fd)
            os.close(self.writer_fd)
            self.writer_fd = -1
        return 0
