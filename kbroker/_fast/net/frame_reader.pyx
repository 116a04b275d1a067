"""The receive side of a connection: it owns the buffer for the next bytes, and keeps an unfinished frame between two
reads.

A connection with nothing unfinished holds no buffer.  An unfinished frame stays in the pooled buffer while few
connections have one.  When many do, it is copied into an allocation of its own size (`stash`): 10,000 connections that
send one byte each hold 10,000 bytes.  A frame that fits no pooled buffer moves to a buffer of the frame's size.

The reader is its own buffer object: the free part, `filled` to capacity, is what the loop reads into.
Invariant: 0 <= start <= filled <= capacity; `buffer` and `stash` are never both set; a full buffer pauses reading;
`wanted_bytes` is what a large frame needs while AWAITING_MEMORY, else 0.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.base.cursor cimport kb_load32
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport AWAITING_MEMORY, PAUSED, READING, ReadState, may_read_next
from kbroker._fast.net.receive_buffer cimport BufferPool, ReceiveBuffer
from kbroker._fast.net.socket_part cimport SocketPart

cdef enum:
    # Leftovers up to this size are copied out so that the pooled buffer can go back.
    STASH_BYTES = 16384
    # So many connections may keep their pooled buffer between two reads of one frame.
    KEPT_BUFFERS = 32


cdef inline Py_ssize_t frame_bytes(const char* data) noexcept nogil:
    """The length that stands before a frame; the caller has seen to it that 4 bytes are there."""
    return <Py_ssize_t> <int> kb_load32(<const unsigned char*> data)


cdef class FrameReader:
    """The bytes that came on one socket and are not served yet."""

    def __cinit__(self, BufferPool pool not None, SocketPart socket not None, ConnectionInterface connection not None):
        self.pool = pool
        self.socket = socket
        self.connection = connection

    def __dealloc__(self):
        free(self.stash)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer.data + self.filled, self.buffer.capacity - self.filled, 0, flags)

    cdef FrameReader room(self):
        """Itself, with room for what comes next."""
        if self.buffer is None:
            self.buffer = self.pool.acquire()
            self.start = self.filled = 0
            self._unstash()
        return self

    cdef ssize_t look(self) except? -3:
        """As `SocketPart.look`, where no frame is unfinished; the bytes read are then in the buffer, behind
        `filled`."""
        cdef ssize_t got
        if self.state != READING or self.stash_bytes > 0 or self.buffer is not None:
            return -1
        self.room()
        got = self.socket.look(self.buffer.data, self.buffer.capacity)
        if got <= 0:
            self._give_back()
        return got

    cdef int take_up(self) except -1:
        """Has what was copied out in the buffer again, where it waits for nothing."""
        if self.stash_bytes > 0 and self.buffer is None and self.wanted_bytes == 0:
            self.room()
        return 0

    cdef Py_ssize_t next_frame(self, Py_ssize_t* size) noexcept:
        """How much lies in the buffer from the next frame's length on, which is taken from there, untrusted, where its
        4 bytes have come."""
        cdef Py_ssize_t available = self.filled - self.start
        if available >= 4:
            size[0] = frame_bytes(self.buffer.data + self.start)
        return available

    cdef bytes beginning(self):
        """What the next frame begins with, for those who describe it."""
        return PyBytes_FromStringAndSize(self.buffer.data + self.start, min(self.filled - self.start, 16))

    cdef bint has_rest(self) noexcept:
        """Whether there are bytes that were not served."""
        return self.stash_bytes + self.filled - self.start > 0

    cdef int settle(self, bint waiting) except -1:
        """After the frames that could be handled: give the buffer back, or make room for the rest of the next frame.

        `waiting`: whole frames may lie in the buffer, behind a request under way or answers not taken.
        """
        cdef Py_ssize_t leftover, need
        if CHECKED:
            self._check()
        if self.buffer is None:
            return 0
        if waiting and self.buffer.counted and self.buffer.exports > 0:
            # The request under way uses it, so it counts against the budget until the answer is there.
            return self._pause()
        leftover = self.filled - self.start
        if leftover == 0:
            self._give_back()
            self._resume()
            return 0
        need = 4 + frame_bytes(self.buffer.data + self.start) if leftover >= 4 else 4
        if need > self.buffer.capacity and not waiting:
            return self._grow(need, leftover)
        if leftover <= STASH_BYTES and leftover < self.pool.buffer_bytes and (
            self.buffer.counted or self.buffer.exports > 0 or self.pool.held > KEPT_BUFFERS
        ):
            self._stash(leftover)
            return self._resume()
        if self.start > 0 and self.buffer.exports == 0:
            memmove(self.buffer.data, self.buffer.data + self.start, leftover)
            self.start, self.filled = 0, leftover
        elif self.start + need > self.buffer.capacity and not waiting:
            self._replace(max(need, leftover), leftover)
        if self.filled == self.buffer.capacity:
            # Whole frames wait behind a request under way: they are all that is taken from this client now.
            self._pause()
        else:
            self._resume()
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
            self._stash(leftover)
            self._pause()
            self._next(AWAITING_MEMORY)
            self.wanted_bytes = need
            self.pool.wait(self)
            # What it has just given back may be the room that it needs.
            return self.pool.wake()
        memcpy(frame.data, self.buffer.data + self.start, leftover)
        self._give_back()
        self.buffer, self.start, self.filled = frame, 0, leftover
        self._resume()
        return 0

    def resume_after_budget(self) -> bool:
        """It is this one's turn: take the large frame's buffer and read on.  False when there is no room for it yet."""
        cdef Py_ssize_t need = self.wanted_bytes
        cdef ReceiveBuffer frame
        if need == 0:
            return True
        frame = self.pool.acquire_frame(need, True)
        if frame is None:
            return False
        self.wanted_bytes = 0
        self.buffer, self.start, self.filled = frame, 0, 0
        self._unstash()
        self.connection.memory_came()
        self._resume()
        return True

    cdef int close(self) except -1:
        """Give back what it holds; nothing comes any more."""
        self.connection = None
        if self.buffer is not None:
            self._give_back()
        if self.wanted_bytes > 0:
            self.wanted_bytes = 0
            # Those who wait behind this one may fit.
            self.pool.wake()
        return 0

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

    cdef int _pause(self) except -1:
        if self.state == READING:
            self._next(PAUSED)
            self.socket.pause_reading()
        return 0

    cdef int _resume(self) except -1:
        if self.state != READING and self.wanted_bytes == 0:
            self._next(READING)
            self.socket.resume_reading()
        return 0

    cdef int _check(self) except -1:
        """Raises AssertionError unless what is not served lies in one place, within it."""
        assert 0 <= self.start <= self.filled, (self.start, self.filled)
        assert self.stash_bytes == 0 or (self.stash != NULL and self.buffer is None), "bytes in two places"
        if self.buffer is None:
            assert self.filled == 0, self.filled
        else:
            assert self.filled <= self.buffer.capacity, (self.filled, self.buffer.capacity)
        assert (self.wanted_bytes > 0) <= (self.state == AWAITING_MEMORY), (self.wanted_bytes, self.state)
        return 0

    cdef int _next(self, ReadState then) except -1:
        assert may_read_next(self.state, then), (self.state, then)
        self.state = then
        return 0
