"""The receive side of a connection: where the next bytes go, and what happens to an unfinished frame between two reads.

A connection with nothing unfinished holds no buffer.  An unfinished frame stays in the pooled buffer while few
connections do that, is copied out (`stash`) to the size it has when many do, so that 10,000 connections that send one
byte each hold 10,000 bytes, and moves to a buffer of the frame's own size once it cannot fit a pooled one.

The receiver is its own buffer object: the loop asks `get_buffer` and reads into the free part, `filled` to capacity.
Invariant: 0 <= start <= filled <= capacity; `buffer` and `stash` are never both set; a full buffer pauses reading.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EAGAIN, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from kbroker._fast.base.cursor cimport kb_load32
from kbroker._fast.net.receive_buffer cimport ReceiveBuffer
from kbroker._fast.net.transport_ends cimport TransportEnds

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    int MSG_DONTWAIT

cdef enum:
    # Leftovers up to this size are copied out so that the pooled buffer can go back.
    STASH_BYTES = 16384
    # So many connections may keep their pooled buffer between two reads of one frame.
    KEPT_BUFFERS = 32


cdef inline Py_ssize_t frame_bytes(const char* data) noexcept nogil:
    """The length that stands before a frame; the caller has seen to it that 4 bytes are there."""
    return <Py_ssize_t> <int> kb_load32(<const unsigned char*> data)


cdef class Receiver(TransportEnds):
    def __dealloc__(self):
        free(self.stash)

    def get_buffer(self, sizehint):
        if self.buffer is None:
            self.buffer = self.pool.acquire()
            self.start = self.filled = 0
            self._unstash()
        return self

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer.data + self.filled, self.buffer.capacity - self.filled, 0, flags)

    cdef int received(self, Py_ssize_t size) except -1:
        """So many bytes came into the free part of the buffer."""
        raise NotImplementedError

    cdef int finish(self, object frame) except -1:
        """The answer to the deferred request (`FlushBatch.add_request`), or None: it is handled by itself then."""
        raise NotImplementedError

    cdef int give_up(self, object error) except -1:
        """The deferred request failed."""
        raise NotImplementedError

    cdef ssize_t look(self) except -2:
        """Serves what has come without the loop's being asked: its bytes; 0 when there is nothing, -1 when not to look.

        Not while a frame is unfinished, and not for the end of the stream or errors: the loop will see them.  The
        descriptor is the transport's and open until `connection_lost`.
        """
        cdef ssize_t got
        if self.closed or self.reading_paused or self.stash_bytes > 0 or self.buffer is not None:
            return -1
        self.get_buffer(-1)
        got = recv(self.fd, self.buffer.data, self.buffer.capacity, MSG_DONTWAIT)
        if got > 0:
            try:
                self.received(got)
            except BaseException:
                # As the loop does with what it hands out itself.
                (<object> self).close("a request failed")
                raise
            return got
        self._give_back()
        return 0 if got < 0 and errno == EAGAIN else -1

    cdef int _settle(self, bint waiting) except -1:
        """After the frames that could be handled: give the buffer back, or make room for the rest of the next frame.

        `waiting`: whole frames may lie in the buffer, behind a request under way or answers not taken.
        """
        cdef Py_ssize_t leftover, need
        if self.buffer is None:
            return 0
        if waiting and self.buffer.counted and self.buffer.exports > 0:
            # The request under way uses it, so it counts against the budget until the answer is there.
            return self._pause_reading()
        leftover = self.filled - self.start
        if leftover == 0:
            self._give_back()
            self._resume_reading()
            return 0
        need = 4 + frame_bytes(self.buffer.data + self.start) if leftover >= 4 else 4
        if need > self.buffer.capacity and not waiting:
            return self._grow(need, leftover)
        if leftover <= STASH_BYTES and leftover < self.pool.buffer_bytes and (
            self.buffer.counted or self.buffer.exports > 0 or self.pool.held > KEPT_BUFFERS
        ):
            self._stash(leftover)
            return self._resume_reading()
        if self.start > 0 and self.buffer.exports == 0:
            memmove(self.buffer.data, self.buffer.data + self.start, leftover)
            self.start, self.filled = 0, leftover
        elif self.start + need > self.buffer.capacity and not waiting:
            self._replace(max(need, leftover), leftover)
        if self.filled == self.buffer.capacity:
            # Whole frames wait behind a request under way: they are all that is taken from this client now.
            self._pause_reading()
        else:
            self._resume_reading()
        return 0

    cdef int _replace(self, Py_ssize_t need, Py_ssize_t leftover) except -1:
        """Move the leftover to a fresh buffer, as views on the old one are still in use."""
        cdef ReceiveBuffer fresh = ReceiveBuffer(max(need, self.pool.buffer_bytes))
        memcpy(fresh.data, self.buffer.data + self.start, leftover)
        self._give_back()
        self.pool.adopt(fresh)
        self.buffer, self.start, self.filled = fresh, 0, leftover
        return 0

    cdef int _grow(self, Py_ssize_t need, Py_ssize_t leftover) except -1:
        """A buffer for the whole of a large frame, or a place in the queue for one."""
        cdef ReceiveBuffer frame = self.pool.acquire_frame(need, False)
        if frame is None:
            self.wanted_bytes = need
            self._stash(leftover)
            self._pause_reading()
            self.pool.wait(self)
            # What it has just given back may be the room that it needs.
            return self.pool.wake()
        memcpy(frame.data, self.buffer.data + self.start, leftover)
        self._give_back()
        self.buffer, self.start, self.filled = frame, 0, leftover
        self._resume_reading()
        return 0

    def resume_after_budget(self) -> bool:
        """It is this one's turn: take the large frame's buffer and read on.  False when there is no room for it yet."""
        cdef Py_ssize_t need = self.wanted_bytes
        cdef ReceiveBuffer frame
        if self.closed or need == 0:
            return True
        frame = self.pool.acquire_frame(need, True)
        if frame is None:
            return False
        self.wanted_bytes = 0
        self.buffer, self.start, self.filled = frame, 0, 0
        self._unstash()
        self._resume_reading()
        return True

    cdef int _stash(self, Py_ssize_t leftover) except -1:
        self.stash = <char*> malloc(leftover)
        if self.stash == NULL:
            raise MemoryError()
        memcpy(self.stash, self.buffer.data + self.start, leftover)
        self.stash_bytes = leftover
        self._give_back()
        return 0

    cdef void _unstash(self):
        if self.stash != NULL:
            memcpy(self.buffer.data, self.stash, self.stash_bytes)
            self.filled = self.stash_bytes
            free(self.stash)
            self.stash = NULL
            self.stash_bytes = 0

    cdef int _give_back(self) except -1:
        cdef ReceiveBuffer buffer = self.buffer
        self.buffer = None
        self.start = self.filled = 0
        return self.pool.release(buffer)

    cdef int _pause_reading(self) except -1:
        if not self.reading_paused and self.transport is not None:
            self.reading_paused = True
            self.transport.pause_reading()
        return 0

    cdef int _resume_reading(self) except -1:
        if self.reading_paused and self.transport is not None and self.wanted_bytes == 0:
            self.reading_paused = False
            self.transport.resume_reading()
        return 0
