"""The one way to answer a request later.

A handler returns its answer, or a `Pending` that will give it.  States: made -> begun (the connection is mute) -> done.

- The condition is the maker's: what finds it met calls `answer` or `answer_frame`.  Before `begin` the answer is kept.
- The deadline: `expire_after`; when it has passed, `expired` is called, and has to answer.
- A lost connection: `lost` is called once, and nothing is answered any more.
- A failure: `fail` ends the connection with a line in the log, as what was done for the request is unknown.

The answers of a connection leave in the order of its requests, since a pending answer mutes the connection.  An answer
that is given while another request is being served is queued until that request is done (`ReadyQueue`).
"""

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.log.fetch_target import enter, leave


cdef class Pending:
    """An answer that comes later; see the module."""

    cpdef int begin(self, object ctx) except -1:
        """Takes the request that this answers.  The connection calls it, once."""
        if CHECKED:
            assert self.ctx is None, "an answer to two requests"
        self.ctx = ctx
        if self.done:
            answer, self.kept = self.kept, None
            return self._send(answer)
        ctx.waiting = self
        self.started()
        return 0

    def started(self) -> None:
        """Called when the request is known: registers at what it waits for, and may answer at once."""

    def answer(self, response) -> None:
        """Gives the answer as a struct; ignored where it was given, or where the client is gone."""
        self._end(response, False)

    def answer_frame(self, frame) -> None:
        """The same with an answer that is encoded: bytes, or a list of bytes and file regions."""
        self._end(frame, True)

    cdef int _end(self, object answer, bint encoded) except -1:
        if self.done:
            return 0
        self.encoded = encoded
        if self.ctx is None:
            self.done = True
            self.kept = answer
            return 0
        self.release()
        return self._send(answer)

    cdef int _send(self, object answer) except -1:
        if self.encoded:
            self.ctx.respond_frame(answer)
        else:
            self.ctx.respond(answer)
        return 0

    cdef int release(self) except -1:
        """Nothing is answered here any more."""
        if CHECKED:
            assert not self.done, "two answers to one request"
        self.done = True
        if self.ctx is not None and self.ctx.waiting is self:
            self.ctx.waiting = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0

    def give_way(self, Pending other not None) -> None:
        """Has another pending answer the request in the place of this one."""
        if not self.done:
            self.release()
            other.begin(self.ctx)

    def fail(self, error) -> None:
        """Ends the connection: what was done for this request is unknown."""
        if not self.done:
            self.release()
            self.ctx.fail(error)

    def lost(self) -> None:
        """The connection has ended: an answer would reach no client.  Takes back what was registered."""

    cpdef int lose(self) except -1:
        """The connection has ended, or goes on without this answer."""
        if not self.done:
            self.release()
            self.lost()
        return 0

    def expire_after(self, loop, wait_ms) -> None:
        """Has `expired` called in `wait_ms`, unless the answer was given by then, and at no other time."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = loop.call_later(wait_ms / 1000, self._expire)

    def expired(self) -> None:
        """The deadline has passed."""
        raise NotImplementedError

    def _expire(self) -> None:
        self.timer = None
        if not self.done:
            try:
                self.expired()
            except Exception as error:
                self.fail(error)


cdef class DelayedFetch(Pending):
    """A fetch that waits in a purgatory for more to read at its sources, or for `wait_ms` to pass.

    `sources`: partitions, or other `RecordSource`s.  `on_beat`: it may wait for less, up to a beat of the clock, as
    those of followers, which come again at once.  `operation`: what Kafka calls the kind of such waits.
    """

    operation = "Fetch"

    def __init__(self, purgatory, tuple sources not None, int wait_ms):
        self.purgatory = purgatory
        self.sources = sources
        self.wait_ms = wait_ms

    def attempt(self, force) -> bool:
        """Reads again, and answers when there is enough, or in any case when `force`; whether it did."""
        raise NotImplementedError

    def started(self) -> None:
        self.purgatory.add(self)

    cpdef int wait_at(self, tuple sources) except -1:
        """Waits on at other sources, those of its last attempt."""
        leave(self, self.sources)
        self.sources = sources
        enter(self, sources)
        return 0

    def lost(self) -> None:
        self.purgatory.forget(self)

    def attempt_unmarked(self) -> bool:
        """`attempt(True)` where none of its sources was marked since the last attempt."""
        return self.attempt(True)

    def expired(self) -> None:
        self.purgatory.time_is_up(self)
