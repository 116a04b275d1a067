"""One request under way, as its handler sees it."""


cdef class RequestContext:
    """One request under way: its header, where it came from, and where its answer goes.

    `abandoned`: what a handler that answers later wants called when the connection ends before that.
    `lasting`: set by a handler of a lasting route whose answer is good for equal requests, until the listener forgets.
    """

    def respond(self, response) -> None:
        """Answer a request whose handler returned None; ignored when the connection is gone."""
        self.abandoned = None
        self.connection.conclude(self, response, False)

    def respond_frame(self, frame) -> None:
        """The same with an answer that is encoded: bytes, or a list of bytes and file regions."""
        self.abandoned = None
        self.connection.conclude(self, frame, True)

    def fail(self, error) -> None:
        """Nobody knows what was done for a request that waited: its connection ends, and the error is told of."""
        self.abandoned = None
        if self.connection.awaits(self):
            self.connection.failed(self, error)

    def decode(self, bytes request):
        """What stood behind the request's header, as its handler wants it; ValueError for what is no such request."""
        return self.route.decoder(self.api_version)(request, 0, len(request))

    def handle(self, request) -> None:
        """Have its handler serve a request that waited without it (`DirectAnswers.wait`)."""
        cdef object response
        self.abandoned = None
        try:
            response = self.route.handle(self, request)
        except Exception as error:
            self.fail(error)
            return
        if response is not None:
            self.respond(response)

    @property
    def open(self) -> bool:
        """Whether an answer would still reach the client."""
        return self.connection.awaits(self)
