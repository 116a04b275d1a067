"""The check that every request passes before it is answered, from the answer memo, in C, or by its handler.

A `Gatekeeper` gives each connection, for each client id that it names, the `Gate` that its requests pass, or None where
its requests are not checked.  A listener without a gatekeeper checks nothing; that costs one comparison.

A gate sees each request twice: `admit` before anything is done for it, `settle` when its answer is ready, which returns
the time for which the connection is muted afterwards (KIP-219); the answer names it.
"""

cdef enum:
    # As Kafka numbers them.
    READ = 3
    WRITE = 4
    CLUSTER_ACTION = 9
    TOPIC = 2
    CLUSTER = 4
    # So many topics are remembered for each gate at most.
    MOST_NAMES = 65536

cdef str CLUSTER_NAME = "kafka-cluster"


cdef class Gate:
    """The rules for the requests of one principal and client id.

    `view`: hashable, part of the key of what is remembered between requests: two gates with equal views may see
    the same.  `allows_direct`: whether requests may be answered from their bytes, without their handler.  `judge`: the
    gatekeeper of a client with an authorizer, by whose rights even those are answered; its generation says when they
    have changed.
    """

    def __init__(self, view=None, bint allows_direct=True, Gatekeeper judge=None):
        self.view = view
        self.allows_direct = allows_direct
        self.judge = judge
        if judge is not None:
            self.readable = set()
            self.writable = set()
            self.generation = judge.generation

    cdef bint may_read(self, object name) except -1:
        """Whether the client may read a topic; what is not known by its name is no secret."""
        if self.judge is None or name is None:
            return True
        if self.generation != self.judge.generation:
            self._forget()
        return name in self.readable or self._learn(self.readable, READ, name)

    cdef bint may_write(self, object name) except -1:
        """The same of writing to it."""
        if self.judge is None or name is None:
            return True
        if self.generation != self.judge.generation:
            self._forget()
        return name in self.writable or self._learn(self.writable, WRITE, name)

    cdef bint may_replicate(self) except -1:
        """Whether the client may fetch as a follower does."""
        return self.judge is None or self.is_authorized(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)

    cdef bint _learn(self, set allowed, int operation, object name) except -1:
        if not self.is_authorized(operation, TOPIC, name):
            return False
        if len(allowed) >= MOST_NAMES:
            allowed.clear()
        allowed.add(name)
        return True

    cdef int _forget(self) except -1:
        self.readable.clear()
        self.writable.clear()
        self.generation = self.judge.generation
        return 0

    def client(self) -> str:
        """Who the client is, for the audit log."""
        return ""

    def admit(self, ctx) -> bool:
        """Whether the request is served; where not, this has closed the connection."""
        return True

    def answer_limit(self, ctx) -> int:
        """How many bytes of records an answer may have; -1 for no limit."""
        return -1

    def is_authorized(self, operation, kind, name) -> bool:
        """Whether the client may do that to a resource; numbers are Kafka's."""
        return True

    def allows(self, ctx, operation, kind, name, quietly) -> bool:
        """The same for a request, which is noted.  `quietly`: the request does not name the resource."""
        return self.is_authorized(operation, kind, name)

    def is_authorized_for_any(self, operation, kind) -> bool:
        """Whether the client may do that to at least one resource of that kind."""
        return True

    def mutation_quota(self, strict):
        """What a request that changes topics is counted against; None for nothing.  `strict`: whether its version
        knows THROTTLING_QUOTA_EXCEEDED."""
        return None

    def settle(self, ctx, bytes_in, bytes_out, spent_ns):
        """Counts a request whose answer is ready: (milliseconds to mute the connection for, whether its records are
        withheld).  `spent_ns`: of the loop's time; `bytes_out`: of the answer, for APIs whose answers have records."""
        return 0, False

    def withheld(self, ctx, head, throttle_ms):
        """The struct that replaces, without records, an answer that begins with the bytes `head`; None where that
        answer has no records to withhold."""
        return None


cdef class Gatekeeper:
    """Gives connections their gates.  Gates are asked for anew when `generation` has changed."""

    def gate_for(self, connection, client_id):
        """The gate for requests of this connection under this client id; None where nothing is asked of them."""
        return None

    def renew(self) -> None:
        """Have every connection ask for its gate again at its next request."""
        self.generation += 1
