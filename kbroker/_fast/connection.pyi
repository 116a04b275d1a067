from collections.abc import Callable
from typing import Any

from kbroker._fast.responder import Responder
from kbroker._fast.route import NO_RESPONSE as NO_RESPONSE
from kbroker._fast.route import Endpoint

class RequestContext:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: Connection
    services: Any
    open: bool
    abandoned: Callable[[], object] | None
    lasting: bool
    def respond(self, response: Any) -> None: ...

class Connection(Responder):
    busy: bool
    serving: bool
    ended: bool
    queued_bytes: int
    holds_budget: bool
    listener_name: str
    def __init__(self, endpoint: Endpoint) -> None: ...
    def connection_made(self, transport: Any) -> None: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, error: BaseException | None) -> None: ...
    def close(self, reason: str = "closed") -> None: ...
