"""A fetch that C serves, and its connection."""

from __future__ import annotations

from typing import Any

from kbroker._fast.net.pending import Pending
from kbroker.handlers.records.fetch import FAST_FETCH, FetchResponse, handle_fetch
from tests.extensions.direct_requests import ask
from tests.handlers.both_ways import FetchRequest

LONG_MS = 300_000


class Context:
    """A request under way: takes its answer as `_fast.net.request_context` does."""

    correlation_id = 77
    gate = None

    def __init__(self, services: Any, version: int, handler: Any = handle_fetch) -> None:
        self.services = services
        self.api_version = version
        self.handler = handler
        self.open = True
        self.waiting: Any = None
        self.answers: list[Any] = []

    def respond(self, answer: Any) -> None:
        self.respond_frame(FetchResponse.program(self.api_version).encode_response(answer, 77, self.api_version >= 12))

    def respond_frame(self, frame: Any) -> None:
        self.open = False
        self.answers.append(frame)

    def fail(self, error: Exception) -> None:
        self.open = False
        self.answers.append(repr(error).encode())

    def decode(self, data: bytes) -> Any:
        return FetchRequest.program(self.api_version).decode(data, 0, len(data))

    def handle(self, request: Any) -> None:
        self.take(self.handler(self, request))

    def take(self, answer: Any) -> None:
        """What a connection does with what a handler, or the direct way, gives."""
        if isinstance(answer, Pending):
            answer.begin(self)
        elif isinstance(answer, bytes | list):
            self.respond_frame(answer)
        else:
            self.respond(answer)

    def leave(self) -> None:
        """The client goes."""
        self.open = False
        if self.waiting is not None:
            self.waiting.lose()


def serve(ctx: Context, data: bytearray, direct: bool) -> bool:
    """What a connection does with a request that came; whether its bytes were enough, which only `direct` looks at."""
    kept = bytes(data)
    frame = ask(FAST_FETCH, ctx.services, ctx.api_version, 77, data) if direct else None
    if frame is None:
        ctx.handle(ctx.decode(kept))
        return False
    data[:] = b"\xff" * len(data)  # the receive buffer is another request's now
    ctx.take(frame)
    return True
