from collections.abc import Callable
from typing import Any

from kbroker._fast.connection import Connection
from kbroker._fast.file_region import FileRegion

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
    def respond_frame(self, frame: bytes | list[bytes | FileRegion]) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def decode(self, request: bytes) -> Any: ...
    def handle(self, request: Any) -> None: ...
