"""Memory that requests are received into, shared by all connections.

A connection borrows a buffer when the kernel has bytes for it and gives it back as soon as no unfinished frame lies
in it, so that an idle connection holds none.  Two kinds:

* pooled buffers of `buffer_bytes`, enough for most frames, kept on a free list;
* frame buffers of a large frame's exact size, counted against `limit_bytes` (`queued.max.request.bytes`).  When the
  budget is used up the connection waits its turn, and its socket is not read.  Waiting connections are served in the
  order in which they came, and later ones queue behind them, so that small frames cannot hold up a large one for ever.
  A frame larger than the whole budget is let through alone.

Record batches are handed to the log as memoryviews over these buffers.  `exports` counts those views: a buffer that
is given back while views on it live is left to them and to the garbage collector, never reused.  A frame buffer counts
against the budget until the last of them is gone: a thread may still read a batch whose client has left.
"""

from kbroker._fast.base.checked cimport CHECKED
from collections import deque

from cpython.buffer cimport PyBuffer_FillInfo
from cython cimport no_gc_clear
from libc.stdlib cimport free, malloc

cdef enum:
    # As many as wait for the end of a turn (`flush_batch.pyx`).
    FREE_LIST_LENGTH = 32
    FRAME_ROUND_BYTES = 65536


@no_gc_clear
cdef class ReceiveBuffer:
    """A block of memory that takes part in the buffer protocol and counts its views."""

    def __cinit__(self, Py_ssize_t capacity):
        self.data = <char*> malloc(capacity)
        if self.data == NULL:
            raise MemoryError()
        self.capacity = capacity

    def __dealloc__(self):
        free(self.data)
        if self.owed_to is not None:
            self.owed_to.collect(self.capacity)

    def __len__(self):
        return self.capacity

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.capacity, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1


cdef class BufferPool:
    """The buffers of one broker and the budget of its large frames.

    `buffer_bytes`: size of a pooled buffer.  `limit_bytes`: what large frames may hold together, 0 for no limit.
    `spare_limit_bytes`: how much of freed frame buffers is kept for the next large frame.  `loop`: where those
    who wait go on when a thread has let go of a buffer.
    """

    def __cinit__(self, Py_ssize_t buffer_bytes=131072, Py_ssize_t limit_bytes=0, Py_ssize_t spare_limit_bytes=8388608):
        if buffer_bytes < 1024:
            raise ValueError("a pooled buffer has at least 1024 bytes")
        self.buffer_bytes = buffer_bytes
        self.limit_bytes = limit_bytes
        self.spare_limit_bytes = spare_limit_bytes
        self.free = []
        self.spare = []
        self.waiting = deque()

    cdef ReceiveBuffer acquire(self):
        self.held += 1
        if self.free:
            return <ReceiveBuffer> self.free.pop()
        return ReceiveBuffer(self.buffer_bytes)

    cdef ReceiveBuffer acquire_frame(self, Py_ssize_t size, bint in_turn):
        """A buffer for a frame of `size` bytes, or None when the budget has no room now.

        `in_turn`: the caller has waited, and is the first of those who do.
        """
        cdef ReceiveBuffer candidate
        cdef Py_ssize_t capacity = (size + FRAME_ROUND_BYTES - 1) // FRAME_ROUND_BYTES * FRAME_ROUND_BYTES
        cdef Py_ssize_t index
        if self.waiting and not in_turn:
            return None
        if self.limit_bytes > 0 and self.used_bytes > 0 and self.used_bytes + capacity > self.limit_bytes:
            return None
        for index in range(len(self.spare)):
            candidate = <ReceiveBuffer> self.spare[index]
            if capacity <= candidate.capacity <= 4 * capacity and (
                self.limit_bytes == 0 or self.used_bytes + candidate.capacity <= self.limit_bytes
            ):
                del self.spare[index]
                self.spare_bytes -= candidate.capacity
                break
        else:
            candidate = ReceiveBuffer(capacity)
        candidate.counted = True
        self.used_bytes += candidate.capacity
        return candidate

    cdef void adopt(self, ReceiveBuffer buffer):
        """Count a buffer that a connection made for bytes which it already holds."""
        buffer.counted = True
        self.used_bytes += buffer.capacity

    cdef int release(self, ReceiveBuffer buffer) except -1:
        if CHECKED:
            assert buffer.counted or self.held > 0, "a pooled buffer given back twice"
            assert not buffer.counted or self.used_bytes >= buffer.capacity, (self.used_bytes, buffer.capacity)
        if not buffer.counted:
            self.held -= 1
            if buffer.exports == 0 and len(self.free) < FREE_LIST_LENGTH:
                self.free.append(buffer)
            return 0
        buffer.counted = False
        if buffer.exports > 0:
            buffer.owed_to = self
            return 0
        self.used_bytes -= buffer.capacity
        if self.spare_bytes + buffer.capacity <= self.spare_limit_bytes:
            self.spare.append(buffer)
            self.spare_bytes += buffer.capacity
        return self.wake()

    cdef int collect(self, Py_ssize_t capacity) except -1:
        """Returns to the budget the bytes of a buffer whose last view is gone; may be called in any thread."""
        self.used_bytes -= capacity
        if self.waiting and self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.wake_waiting)
        return 0

    def wake_waiting(self):
        """Let those who wait for the budget go on.  Called on the loop."""
        self.wake()

    cdef int wait(self, object connection) except -1:
        self.waiting.append(connection)
        return 0

    cdef int wake(self) except -1:
        """Let those who wait go on, in order, as far as there is room."""
        while self.waiting:
            connection = self.waiting.popleft()
            if not connection.resume_after_budget():
                self.waiting.appendleft(connection)
                break
        return 0

    @property
    def waiting_count(self) -> int:
        """Connections that wait for the budget."""
        return len(self.waiting)

    def trim(self) -> int:
        """Free what no connection holds; the number of bytes given back.  Called when the broker is idle."""
        freed = self.spare_bytes + len(self.free) * self.buffer_bytes
        self.free.clear()
        self.spare.clear()
        self.spare_bytes = 0
        return freed
