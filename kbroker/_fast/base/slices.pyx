"""Slices of the event loop's time: the one way in which long work yields to everybody else.

Work that grows with what a client sends awaits a `Pace` at each step (`await pace`).  The await costs tens of
nanoseconds, and the work continues at once until its slice is used up.  Then it waits in one queue of the broker; each
turn of the loop lets one waiter of that queue continue.  So however many large requests are under way, others wait for
one slice of 2 ms and one step.  The first slice of a request is shorter, because those of several requests may fall
into one turn.

What cannot await asks `pace.due()` between two steps, and leaves the rest to `pace.then(call)`, which waits in the same
queue.  C loops that cannot yield look at the clock and stop after the same time: `slice_ns`, or SLICE_NS where they
have no `Slices`.

Invariant: between two `await pace` nothing else runs; behind each the world may have changed.
"""

import asyncio
from collections import deque

from kbroker._fast.base.monotonic cimport now_ns

cdef enum:
    # The first slice is so many times shorter.
    FIRST_SLICE_SHARE = 4


cdef class Slices:
    """The queue of one loop, of which it needs `call_soon` and `create_future`; None: the loop that is running.

    `slice_us` 0 ends the slice at every step: tests see all interleavings then.
    """

    def __init__(self, loop=None, long slice_us=SLICE_NS // 1000):
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

    cdef object queue(self, object turn):
        """Appends a future or a `Turn` (both have `done()`) to the queue of waiters."""
        self.count += 1
        self.waiting.append(turn)
        self._schedule()
        return turn

    cdef object own_loop(self):
        return asyncio.get_running_loop() if self.loop is None else self.loop

    cdef int _schedule(self) except -1:
        if self.waiting and not self.scheduled:
            self.own_loop().call_soon(self._let_one_go)
            self.scheduled = True
        return 0

    def _let_one_go(self) -> None:
        self.scheduled = False
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._schedule()


cdef class Turn:
    """A call that waits in the queue; see `Pace.then`."""

    def done(self) -> bool:
        """Whether it was cancelled."""
        return self.call is None

    def cancel(self) -> None:
        """Has the call never come."""
        self.call = None

    def set_result(self, _) -> None:
        """The turn has come; as with a future, what waits for it runs in the loop's next one."""
        self.pace.slices.own_loop().call_soon(self._run)

    def _run(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            self.pace.begin_slice()
            call()


cdef class Pace:
    """Awaited between two steps of long work; its own iterator, so that a step within the slice makes no object."""

    cpdef bint due(self) noexcept:
        """Whether the slice is used up."""
        return now_ns() - self.began >= self.limit

    def then(self, call) -> Turn:
        """Has `call()` go on with the work when its turn comes; what this returns can be cancelled."""
        cdef Turn turn = Turn.__new__(Turn)
        turn.pace = self
        turn.call = call
        return self.slices.queue(turn)

    cdef void begin_slice(self) noexcept:
        self.began = now_ns()
        self.limit = self.slices.slice_ns

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self.resting is None:
            if not self.due():
                raise StopIteration
            self.resting = self.slices.queue(self.slices.own_loop().create_future())
            self.resting._asyncio_future_blocking = True
            return self.resting
        self.resting = None
        self.begin_slice()
        raise StopIteration
