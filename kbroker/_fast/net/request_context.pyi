from typing import Any, Protocol

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.gate.gate import Gate
from kbroker._fast.net.answer_memo import AnswerRenewal
from kbroker._fast.net.pending import Connection

class ServedConnection(Connection, Protocol):
    def decoded(self) -> None: ...
    def malformed(self, ctx: Any, error: ValueError) -> int: ...

class RequestContext:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: ServedConnection
    services: Any
    open: bool
    gate: Gate | None
    waiting: Any
    left: Any
    cacheable: bool
    renewal: AnswerRenewal | None
    frame: bytes | None
    by_follower: bool
    def note_error(self, code: int) -> None: ...
    def respond(self, response: Any) -> None: ...
    def respond_frame(self, frame: bytes | list[bytes | FileRegion]) -> None: ...
    def forward_answer(self, frame: bytes, throttle_ms: int) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def decode(self, request: bytes) -> Any: ...
    def handle(self, request: Any) -> None: ...
    def take(self, response: Any) -> None: ...
