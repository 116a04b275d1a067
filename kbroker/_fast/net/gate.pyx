"""The check that every request passes before it is answered, from the answer memo, in C, or by its handler.

A `Gatekeeper` gives each connection, for each client id that it names, the `Gate` that its requests pass, or None where
its requests are not checked.  A reactor without a gatekeeper checks nothing; that costs one comparison.

A gate sees each request twice: `admit` before anything is done for it, `settle` when its answer is ready, which returns
the time for which the connection is muted afterwards (KIP-219); the answer names it.
"""


cdef class Gate:
    """The rules for the requests of one principal and client id.

    `view`: hashable, part of the key of what is remembered between requests: two gates with equal views may see
    the same.  `allows_direct`: whether requests may be answered from their bytes, without their handler.
    """

    def __init__(self, view=None, bint allows_direct=True):
        self.view = view
        self.allows_direct = allows_direct

    def admit(self, ctx) -> bool:
        """Whether the request is served; where not, this has closed the connection."""
        return True

    def answer_limit(self, ctx) -> int:
        """How many bytes of records an answer may have; -1 for no limit."""
        return -1

    def is_authorized(self, operation, kind, name) -> bool:
        """Whether the client may do that to a resource; numbers are Kafka's."""
        return True

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
