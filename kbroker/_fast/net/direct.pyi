from typing import Any

from typing_extensions import Buffer

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.net.pending import Pending

class Partly:
    appended: list[tuple[int, int] | None]
    def go_on(self, ctx: Any, request: Any) -> Any: ...

class DirectAnswers:
    def ask(
        self, services: Any, version: int, correlation_id: int, request: Buffer
    ) -> bytes | list[bytes | FileRegion] | Pending | Partly | None: ...
