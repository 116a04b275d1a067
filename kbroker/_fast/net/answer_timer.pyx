"""How long the answers of one connection are on their way: until they are first given to the socket, and from then
until it has taken all of them.

An answer that is given to the socket as soon as it is ready has waited for 0: the clock is not read again for that.
The clock is read once for all answers that leave together, behind the call that sends them.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kbroker._fast.base.counters cimport AnswerTimes, RequestStats
from kbroker._fast.base.monotonic cimport measured_ns

cdef enum:
    # A connection that had more answers under way at a time keeps no room for them.
    KEPT = 64
    LEAST = 2


cdef class AnswerTimer:
    """The answers that are queued, in their order."""

    def __cinit__(self, RequestStats stats not None):
        self.stats = stats

    def __dealloc__(self):
        free(self.leaving)

    cdef int begin(self, int api_key, bint by_follower, uint64_t total_ns, uint64_t now, Py_ssize_t end) except -1:
        """An answer is ready at `now`, `total_ns` after its request; `end` parts are queued then.  One with nothing
        before it and nothing in it has left."""
        cdef AnswerTimes nothing
        cdef Leaving* one
        if end == 0:
            nothing = AnswerTimes(total_ns, 0, 0)
            self.stats.record_answer(api_key, by_follower, &nothing)
            return 0
        if self.count == self.capacity:
            one = <Leaving*> realloc(self.leaving, (2 * self.capacity + LEAST) * sizeof(Leaving))
            if one == NULL:
                raise MemoryError()
            self.leaving = one
            self.capacity = 2 * self.capacity + LEAST
        one = self.leaving + self.count
        self.count += 1
        one.ready_at, one.total_ns, one.end = now, total_ns, end
        one.api_key, one.by_follower = api_key, by_follower
        return 0

    cdef void look(self, uint64_t now) noexcept:
        """All that is queued is given to the socket now; where `now` is 0, when the last one became ready."""
        cdef Leaving* one
        if self.looked == self.count:
            return
        now = max(now, self.leaving[self.count - 1].ready_at)
        while self.looked < self.count:
            one = self.leaving + self.looked
            one.looked_at = now
            self.looked += 1

    cdef void end(self, bint is_all, Py_ssize_t head) noexcept:
        """The socket has taken all parts, or so many of them."""
        cdef uint64_t now
        cdef AnswerTimes times
        cdef Leaving* one
        cdef Py_ssize_t done = 0
        if self.count == 0 or (not is_all and self.leaving[0].end > head):
            return
        now = measured_ns()
        while done < self.count and (is_all or self.leaving[done].end <= head):
            one = self.leaving + done
            times = AnswerTimes(one.total_ns, one.looked_at - one.ready_at, max(now, one.looked_at) - one.looked_at)
            self.stats.record_answer(one.api_key, one.by_follower, &times)
            done += 1
        self.count -= done
        self.looked -= min(done, self.looked)
        if self.count:
            memmove(self.leaving, self.leaving + done, self.count * sizeof(Leaving))
        elif self.capacity > KEPT:
            self.forget()

    cdef void forget(self) noexcept:
        """Nothing of what is queued is sent."""
        free(self.leaving)
        self.leaving = NULL
        self.count = self.capacity = self.looked = 0
