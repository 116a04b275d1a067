"""Queue of calls that became ready while a request was served: answers, and work that waited for a commit.

Run to completion: while a request is served no other request begins, and nothing else is answered.  An answer lets its
connection go on with the next request, and work that waited for a commit may append in turn.  Run in the middle of an
append, either would change state that the append still needs.  So both are queued here until no request is being
served.

    serving     a request, or several together (`FlushBatch`), run between `begin` and `end`
    draining    calls from the queue run, one after the other, in the order in which they were put

Both states hold at once when a call from the queue lets a connection serve its next request.  The connection or the
batch that has served a request drains the queue when it has sent; a call put while neither state holds runs in the
loop's next turn.
"""

from collections import deque

from libc.stdint cimport uint64_t

from kbroker._fast.base.monotonic cimport now_ns
from kbroker._fast.base.slices cimport SLICE_NS


cdef class ReadyQueue:
    """One for each loop, of which it needs `call_soon` and `call_exception_handler`."""

    def __init__(self, loop):
        self.loop = loop
        self.calls = deque()

    def __len__(self) -> int:
        return len(self.calls)

    def put(self, call, *arguments) -> None:
        """Have `call(*arguments)` run when no request is being served; not before this returns."""
        self.calls.append((call, arguments))
        self.has_calls = True
        if not self.serving and not self.draining:
            self._schedule()

    def turn(self, call) -> None:
        """Run `call()`, which the loop has called, then what it has put here."""
        cdef bint outermost = not self.serving and not self.draining
        if outermost:
            self.draining = True
        try:
            call()
        finally:
            if outermost:
                self.draining = False
        if outermost:
            self.drain()

    cdef bint begin(self) noexcept:
        """Whether a request may begin now; then `end` is owed.  False: one is being served."""
        if self.serving:
            return False
        self.serving = True
        return True

    cdef int end(self) except -1:
        """The request that began was served, up to its answer or its wait; the caller drains when it has sent."""
        self.serving = False
        if self.has_calls and not self.draining:
            self._schedule()
        return 0

    cpdef int drain(self) except -1:
        """Run what is queued, and what that puts, for a while; nothing where it is being done, or a request is served.
        """
        if self.serving or self.draining or not self.has_calls:
            return 0
        return self._run()

    cdef int _run(self) except -1:
        cdef object call
        cdef tuple arguments
        cdef uint64_t until
        # Then the loop looks at its sockets before it goes on.
        until = now_ns() + SLICE_NS
        self.draining = True
        try:
            while self.has_calls:
                call, arguments = self.calls.popleft()
                self.has_calls = len(self.calls) > 0
                try:
                    call(*arguments)
                except Exception as error:
                    self.loop.call_exception_handler({"message": "a call that was ready failed", "exception": error})
                if now_ns() >= until:
                    break
        finally:
            self.draining = False
        if self.has_calls:
            self._schedule()
        return 0

    def run(self) -> None:
        """The loop's next turn has come."""
        self.scheduled = False
        self.drain()

    cdef int _schedule(self) except -1:
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.run)
        return 0
