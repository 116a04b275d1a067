from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer

from kbroker._fast.crew import Crew
from kbroker._fast.file_region import FileRegion

class DirectAnswers:
    def ask(
        self, services: Any, version: int, correlation_id: int, request: Buffer, ctx: Any = None
    ) -> bytes | list[bytes | FileRegion] | bool | None: ...
    def ask_to_wait(self, ctx: Any, version: int, correlation_id: int, request: Buffer) -> bool: ...
    def ask_all(
        self, services: Any, requests: Sequence[tuple[int, int, Buffer]], crew: Crew | None = None
    ) -> list[bytes | list[bytes | FileRegion] | Exception | None]: ...
