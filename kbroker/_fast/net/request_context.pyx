"""One request under way, as its handler sees it."""

from kbroker._fast.net.pending cimport Pending


cdef class RequestContext:
    """One request under way: its header, where it came from, and where its answer goes.

    `waiting`: the `Pending` that will answer it.
    `lasting`: set by a handler of a lasting route whose answer is good for equal requests, until the listener forgets.
    """

    def respond(self, response) -> None:
        """Answer a request that waited; ignored when the connection is gone."""
        self.connection.conclude(self, response, False)

    def respond_frame(self, frame) -> None:
        """The same with an answer that is encoded: bytes, or a list of bytes and file regions."""
        self.connection.conclude(self, frame, True)

    def fail(self, error) -> None:
        """End the connection, and log the error: what was done for the request is unknown."""
        if self.connection.awaits(self):
            self.connection.failed(self, error)

    def decode(self, bytes request):
        """What stood behind the request's header, as its handler wants it; ValueError for what is no such request."""
        return self.route.decoder(self.api_version)(request, 0, len(request))

    def handle(self, request) -> None:
        """Have its handler serve a request that waited as its bytes."""
        try:
            self.take(self.route.handle(self, request))
        except Exception as error:
            self.fail(error)

    def take(self, response) -> None:
        """Answer a request that waited with what its handler gives now: an answer, a `Pending`, or None."""
        if isinstance(response, Pending):
            (<Pending> response).begin(self)
        elif response is not None:
            self.respond(response)

    @property
    def open(self) -> bool:
        """Whether an answer would still reach the client."""
        return self.connection.awaits(self)
