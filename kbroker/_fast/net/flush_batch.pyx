"""Requests answered together, and answers sent together, at the end of an iteration of the loop.

An iteration that reads from several clients is crowded, and the next one is assumed to be crowded, too.  In a crowded
iteration answers are sent together at its end.  Each `send` to a client that sleeps wakes it, the most expensive part
of a small answer; several in a row wake it once, and it finds the other answers while it works.  Batches that several
clients append to one log are also written together.  With one request in an iteration, waiting would only cost time.
Consumers that wait for a producer's records still get them before the producer gets its answer.

What is done at the end of one iteration has bounds, in bytes and in time; the rest is done at the end of the next one,
in its order.  The bound in bytes is that of all that is sent from the end of one iteration to that of the next, by
whatever connection: one that finds it used up goes on when the next begins.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.monotonic cimport measured_ns
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.base.slices cimport SLICE_NS
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.direct cimport MOST_REQUESTS, DirectAnswers, DirectRequest
from kbroker._fast.net.connection_interface cimport ConnectionInterface

cdef enum:
    # Of so many answers sent at once, one is held back to see whether the iteration brings others.
    PROBE = 16
    # Larger requests are not held back: alone they are as cheap, and their memory is wanted.
    REQUEST_BYTES = 65536
    # Of all requests that are held back, which may have to be answered at once; more are answered by themselves.
    DEFERRED_BYTES = 3145728
    DEFERRED_REQUESTS = 512

cdef double SLICE_SECONDS = SLICE_NS * 1e-9


cdef class FlushBatch:
    """One for each loop, of which it needs `call_soon` alone."""

    def __init__(self, loop, BusyPoll busy_poll, HelperPool helper_pool not None,
                 ReadyQueue ready not None, PurgatoryFields purgatory=None):
        self.loop = loop
        self.busy_poll = busy_poll
        self.helper_pool = helper_pool
        self.purgatory = PurgatoryFields() if purgatory is None else purgatory
        self.ready = ready
        self.unflushed = []
        self.deferred = []
        self.sent_until = TURN_BYTES

    def __dealloc__(self):
        free(self.requests)

    cdef bint delay_flush(self, ConnectionInterface connection) except -1:
        """Whether the connection's answers leave at the end of this iteration, together with those of others.

        An iteration with one answer ends this, and one answer in PROBE is held back to see whether it is alone, unless
        that is known.  If a few consumers wait for what came in an iteration that is not crowded, they are served
        first.
        """
        if not self.crowded and not self.purgatory.due:
            if self.busy_poll.one_alone():
                return False
            self.single_count += 1
            if self.single_count < PROBE:
                return False
        self.unflushed.append(connection)
        self._schedule()
        return True

    cdef bint add_request(self, ConnectionInterface connection, object services, DirectAnswers direct,
                          const DirectRequest* request) except -1:
        """Whether the request is answered with others, by `connection.finish`, at the end of this iteration at latest.

        Those that are answered together have the same services.  Its bytes lie in the connection's buffer, which must
        keep them until then.
        """
        cdef Py_ssize_t count = len(self.deferred)
        cdef DirectRequest* larger
        if not self.crowded or request.size > REQUEST_BYTES or not direct.may_wait(request):
            return False
        if count > 0 and (self.direct is not direct or self.services is not services):
            return False
        if count >= DEFERRED_REQUESTS or self.deferred_bytes + request.size > DEFERRED_BYTES:
            return False
        if count == self.capacity:
            larger = <DirectRequest*> realloc(self.requests, (count + MOST_REQUESTS) * sizeof(DirectRequest))
            if larger == NULL:
                raise MemoryError()
            self.requests = larger
            self.capacity = count + MOST_REQUESTS
        self._schedule()
        self.direct = direct
        self.services = services
        self.requests[count] = request[0]
        self.deferred_bytes += request.size
        self.deferred.append(connection)
        return True

    cdef int answer_requests(self) except -1:
        """Answer the deferred requests; the answers leave at the end of the iteration.

        Nothing is answered meanwhile but these, and no request begins, so that none can be deferred: what an append
        makes ready waits in `ready`.
        """
        return self._answer_first(DEFERRED_BYTES)

    cdef int _answer_first(self, Py_ssize_t most) except -1:
        """Answer those that came first, up to `most` bytes of them; the others stay, in their order."""
        cdef list connections = self.deferred
        cdef Py_ssize_t first, size = 0, count = 0
        if not connections:
            return 0
        if not self.ready.begin():
            raise RuntimeError("deferred requests would be answered amid another request")
        try:
            while count < len(connections) and size + self.requests[count].size <= most:
                size += self.requests[count].size
                count += 1
            self.deferred = connections[count:]
            self.deferred_bytes -= size
            for first in range(0, count, MOST_REQUESTS):
                self._answer_some(connections[first:min(first + MOST_REQUESTS, count)], self.requests + first)
            memmove(self.requests, self.requests + count, len(self.deferred) * sizeof(DirectRequest))
        finally:
            self.ready.end()
        return 0

    cdef int _answer_some(self, list connections, DirectRequest* requests) except -1:
        cdef list answers
        cdef ConnectionInterface connection
        cdef int index
        self.begun_ns = measured_ns()
        try:
            answers = self.direct.answer_all(self.services, requests, len(connections), self.helper_pool)
        except Exception as error:
            for connection in connections:
                connection.give_up(error)
            return 0
        for index, connection in enumerate(connections):
            if isinstance(answers[index], Exception):
                connection.give_up(answers[index])
                continue
            try:
                connection.finish(answers[index])
                self.unflushed.append(connection)
            except Exception as error:
                connection.give_up(error)
        return 0

    cdef int _schedule(self) except -1:
        if not self.scheduled:
            self.loop.call_soon(self.flush)
            self.scheduled = True
        return 0

    def flush(self) -> None:
        """Answer and send what this iteration's requests ask for."""
        cdef list connections
        self.scheduled = False
        self._answer_first(TURN_BYTES)
        connections = self.unflushed
        self.unflushed = []
        self.crowded = len(connections) > 1
        self.single_count = 0
        self.sent_until = self.sent_bytes + TURN_BYTES
        self._send_to(connections)
        if self.deferred or self.unflushed:
            self._schedule()
        self.ready.drain()
        self.busy_poll.served()

    cdef bint is_over(self, TurnShare* share, double now) noexcept:
        """Whether a share of a turn is used up, in bytes or in seconds.  The first question begins it."""
        if share.until == 0.0:
            share.until = now + SLICE_SECONDS
            share.sent_until = self.sent_bytes + TURN_BYTES
        return now >= share.until or self.sent_bytes >= min(share.sent_until, self.sent_until)

    cdef Py_ssize_t most_now(self, Py_ssize_t most) noexcept:
        """Of so many bytes those that may be sent until the next flush.  Not above 0: none."""
        return <Py_ssize_t> min(<int64_t> most, self.sent_until - self.sent_bytes)

    cdef int note_sent(self, int64_t size) except -1:
        """So much was sent, with its weight.  A flush begins anew before what may be sent runs short."""
        self.sent_bytes += size
        if self.sent_until - self.sent_bytes < TURN_BYTES // 2:
            self._schedule()
        return 0

    cdef int _send_to(self, list connections) except -1:
        """Have them send, and go on, one after the other; where that becomes too much, the rest waits for the next
        iteration."""
        cdef ConnectionInterface connection
        cdef TurnShare share = TurnShare(0.0, 0)
        cdef Py_ssize_t index
        for index, connection in enumerate(connections):
            connection.resume()
            if self.is_over(&share, connection.last_active):
                self.unflushed = connections[index + 1:] + self.unflushed
                break
        return 0
