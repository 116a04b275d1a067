"""Slices of the event loop's time: how long work yields to everybody else.

Work that grows with what a client sends awaits a `Pace` at each step (`await pace`).  That costs tens of nanoseconds
and goes on at once until the slice is used up; then the work waits in one queue of the broker, from which each turn of
the loop lets one go on: however many large requests are under way, others wait for one slice of 2 ms and one step.  The
first slice of a request is shorter, because those of several requests may fall into one turn.

Invariant: between two `await pace` nothing else runs; behind each the world may have changed.
"""

from collections import deque

from kbroker._fast.base.monotonic cimport now_ns

cdef enum:
    SLICE_US = 2000
    # The first slice is so many times shorter.
    FIRST_SLICE_SHARE = 4


cdef class Slices:
    """The queue of one loop.  `slice_us` 0 ends the slice at every step: tests see all interleavings then."""

    def __init__(self, loop, long slice_us=SLICE_US):
        self.loop = loop
        self.waiting = deque()
        self.slice_ns = slice_us * 1000
        self.first_slice_ns = self.slice_ns // FIRST_SLICE_SHARE

    def pace(self) -> Pace:
        """The pace of one piece of work, whose first slice begins now."""
        cdef Pace pace = Pace.__new__(Pace)
        pace.slices = self
        pace.began = now_ns()
        pace.limit = self.first_slice_ns
        return pace

    @property
    def busy(self) -> bool:
        """Whether work that took longer than a slice waits for its next one."""
        return self.scheduled

    cdef object queue(self):
        cdef object turn = self.loop.create_future()
        self.count += 1
        self.waiting.append(turn)
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self._let_one_go)
        return turn

    def _let_one_go(self) -> None:
        self.scheduled = False
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self.waiting:
            self.scheduled = True
            self.loop.call_soon(self._let_one_go)


cdef class Pace:
    """Awaited between two steps of long work; its own iterator, so that a step within the slice makes no object."""

    cdef bint due(self) noexcept:
        return now_ns() - self.began >= self.limit

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self.resting is None:
            if not self.due():
                raise StopIteration
            self.resting = self.slices.queue()
            self.resting._asyncio_future_blocking = True
            return self.resting
        self.resting = None
        self.began = now_ns()
        self.limit = self.slices.slice_ns
        raise StopIteration
