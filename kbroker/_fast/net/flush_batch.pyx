"""Requests answered together, and answers sent together, at the end of an iteration of the loop.

An iteration that reads from several clients is crowded, and the next one is assumed to be crowded, too.  In a crowded
iteration answers are sent together at its end.  Each `send` to a client that sleeps wakes it, the most expensive part
of a small answer; several in a row wake it once, and it finds the other answers while it works.  Batches that several
clients append to one log are also written together.  With one request in an iteration, waiting would only cost time.
Consumers that wait for a producer's records still get them before the producer gets its answer.
"""

from libc.stdlib cimport free, realloc

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.net.direct cimport MOST_REQUESTS, DirectAnswers, DirectRequest
from kbroker._fast.net.connection_interface cimport ConnectionInterface

cdef enum:
    # Of so many answers sent at once, one is held back to see whether the iteration brings others.
    PROBE = 16
    # Larger requests are not held back: alone they are as cheap, and their memory is wanted.
    REQUEST_BYTES = 65536


cdef class FlushBatch:
    """One for each loop, of which it needs `call_soon` alone."""

    def __init__(self, loop, services, BusyPoll busy_poll, HelperPool helper_pool not None,
                 ReadyQueue ready not None, PurgatoryFields purgatory=None):
        self.loop = loop
        self.services = services
        self.busy_poll = busy_poll
        self.helper_pool = helper_pool
        self.purgatory = PurgatoryFields() if purgatory is None else purgatory
        self.ready = ready
        self.unflushed = []
        self.deferred = []

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

    cdef bint add_request(self, ConnectionInterface connection, DirectAnswers direct,
                          const DirectRequest* request) except -1:
        """Whether the request is answered with others, by `connection.finish`, at the end of this iteration at latest.

        Its bytes lie in the connection's buffer, which must keep them until then.
        """
        cdef Py_ssize_t count = len(self.deferred)
        cdef DirectRequest* larger
        if not self.crowded or request.size > REQUEST_BYTES or not direct.may_wait(request):
            return False
        if count > 0 and self.direct is not direct:
            return False
        if count == self.capacity:
            larger = <DirectRequest*> realloc(self.requests, (count + MOST_REQUESTS) * sizeof(DirectRequest))
            if larger == NULL:
                raise MemoryError()
            self.requests = larger
            self.capacity = count + MOST_REQUESTS
        self._schedule()
        self.direct = direct
        self.requests[count] = request[0]
        self.deferred.append(connection)
        return True

    cdef int answer_requests(self) except -1:
        """Answer the deferred requests; the answers leave at the end of the iteration.

        Nothing is answered meanwhile but these, and no request begins, so that none can be deferred: what an append
        makes ready waits in `ready`.
        """
        cdef list connections = self.deferred
        cdef Py_ssize_t first
        if not connections:
            return 0
        if not self.ready.begin():
            raise RuntimeError("deferred requests would be answered amid another request")
        try:
            self.deferred = []
            for first in range(0, len(connections), MOST_REQUESTS):
                self._answer_some(connections[first:first + MOST_REQUESTS], self.requests + first)
        finally:
            self.ready.end()
        return 0

    cdef int _answer_some(self, list connections, DirectRequest* requests) except -1:
        cdef list answers
        cdef ConnectionInterface connection
        cdef int index
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
        cdef ConnectionInterface connection
        self.scheduled = False
        self.answer_requests()
        connections = self.unflushed
        self.unflushed = []
        self.crowded = len(connections) > 1
        self.single_count = 0
        for connection in connections:
            connection.resume()
        self.ready.drain()
        self.busy_poll.served()
