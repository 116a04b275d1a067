"""Decides whether the loop polls for the next request for a moment before it sleeps.

A client that sends each request only after the answer to the one before leaves the loop asleep in between.  To sleep
and to be woken costs a virtual processor some 30 us, more than the request.  So when requests have followed each other
closely, the loop polls for events without waiting until none has come for `limit_us`.

Polling ends where it does not pay.  Each time that nothing came, twice as many requests must follow each other closely
before the loop polls again; one success resets that.  When this thread has had to wait for a processor, other threads
need it more, and the loop does not poll for a while.

States: asleep between requests (`streak` close ones so far), or `watching`: `watch` is called in each turn of the loop.
While all requests come from one client (`in_a_row`), each of these turns reads that client's socket directly, without
the loop's own machinery.  The client's virtual processor goes to sleep within some 10 us of waiting for its answer, and
waking it costs more than the request.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport strtoull

from kbroker._fast.base.monotonic cimport is_virtual, now_ns
from kbroker._fast.net.connection_interface cimport ConnectionInterface

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC
    int c_open "open" (const char* path, int flags)
cdef extern from "<unistd.h>" nogil:
    int c_close "close" (int fd)
    ssize_t pread(int fd, void* buffer, size_t size, long offset)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    # So many requests in a row come soon after the one before until the loop waits for them awake: at first, after a
    # watch that was worth it, and at most.
    FIRST_STREAK = 16
    NEXT_STREAK = 4
    LONGEST_STREAK = 1024
    # A watch that found so many requests was worth it.
    WORTH_IT = 16
    # After so many requests of one client in a row its socket is looked at itself, so long in each turn of the loop.
    ALONE = 4
    LOOK_AT_ONE_NS = 20000
    # How often the wait for a processor is looked at, the share of time that is too much (an eighth), and how long
    # the processor is left to others then.
    LOOK_NS = 10000000
    TOO_LONG = 8
    LEFT_NS = 100000000
    # Who keeps the processor no longer than this on average is a client between two requests, not one at work.
    CLIENT_NS = 30000


cdef class BusyPoll:
    """One for each listener.  `limit_us` 0 turns it off.  `loop` needs `call_soon` alone.

    `schedstat` is where the system tells how long the thread that reads it was ready and waited.
    """

    def __init__(self, loop, long limit_us, bytes schedstat=b"/proc/thread-self/schedstat"):
        if not 0 <= limit_us <= 1000000:
            raise ValueError(f"{limit_us} us are not between 0 and a second")
        self.loop = loop
        self.limit_ns = <uint64_t> limit_us * 1000
        self.needed = FIRST_STREAK
        self.schedstat_path = schedstat
        self.schedstat = -1

    def __dealloc__(self):
        if self.schedstat >= 0:
            c_close(self.schedstat)

    cpdef int arrived(self, uint64_t now, ConnectionInterface who=None) except -1:
        """Bytes of a request came at `now`."""
        if self.watching:
            self.found += not self.fresh
            self.fresh = True
            self.in_a_row = self.in_a_row + 1 if who is not None and who is self.last else 0
            self.last = who
        elif now - self.served_ns > 2 * self.limit_ns:
            # Twice, because the loop's own waking up is part of it.
            self.streak = 0
        else:
            self.streak += 1
            if self.streak >= self.needed and now >= self.not_before_ns:
                self._begin(now)
        return 0

    cpdef void served(self) noexcept:
        """What came was handled: the time from here on may be slept through."""
        if not self.watching and self.limit_ns > 0:
            self.served_ns = now_ns()

    cdef int _begin(self, uint64_t now) except -1:
        if self.schedstat < 0:
            # Of the loop's own thread, so not in the constructor.
            self.schedstat = c_open(self.schedstat_path, O_RDONLY | O_CLOEXEC)
        self.found = 0
        self.fresh = True
        self._processor_is_short(now)
        self.watching = True
        self.loop.call_soon(self.watch)
        return 0

    def watch(self) -> None:
        """Another turn of the loop: come again in the next one, or let it sleep."""
        cdef uint64_t now = now_ns()
        if now - self.looked_ns > LOOK_NS and self._processor_is_short(now):
            self.not_before_ns = now + LEFT_NS
            self._end()
            return
        if self.fresh:
            self.fresh = False
            self.quiet_ns = now
        elif now - self.quiet_ns > self.limit_ns:
            self.needed = NEXT_STREAK if self.found >= WORTH_IT else min(2 * self.needed, LONGEST_STREAK)
            self._end()
            return
        try:
            if self.one_alone() and not self.last.is_busy():
                self._look(now)
        finally:
            # Behind what the look gave the loop to do.
            self.loop.call_soon(self.watch)

    cdef bint one_alone(self) noexcept:
        """Whether all requests come from one client, `last`, each soon after the one before; never true while asleep
        between requests."""
        return self.in_a_row >= ALONE

    cdef int _look(self, uint64_t now) except -1:
        """Look at the one client's socket for a moment; what comes is served here, a turn of the loop sooner."""
        cdef ConnectionInterface last = self.last
        cdef uint64_t until = now + LOOK_AT_ONE_NS
        cdef ssize_t got = last.look()
        while got == 0 and now_ns() < until:
            # The client may have been woken on this very processor.
            sched_yield()
            got = last.look()
        self.seen += got > 0
        return 0

    cdef int _end(self) except -1:
        self.last = None
        self.in_a_row = 0
        self.watching = False
        self.streak = 0
        return 0

    cdef bint _processor_is_short(self, uint64_t now) noexcept:
        """Whether this thread waited for a processor for more than an eighth of the time since the last call, and each
        time for longer than a client takes to send its next request.  False where the system does not tell."""
        cdef char text[64]
        cdef char* end
        cdef uint64_t before = self.delayed_ns, since = self.looked_ns, slices = self.slices
        # What the system tells is of its own time.
        cdef ssize_t size = 0 if is_virtual() else pread(self.schedstat, text, sizeof(text) - 1, 0)
        self.looked_ns = now
        if size <= 0:
            return False
        text[size] = 0
        # Nanoseconds at work, nanoseconds ready and waiting, slices.
        strtoull(text, &end, 10)
        self.delayed_ns = strtoull(end, &end, 10)
        self.slices = strtoull(end, NULL, 10)
        if self.delayed_ns - before <= (self.slices - slices) * CLIENT_NS:
            return False
        return (self.delayed_ns - before) * TOO_LONG > now - since
