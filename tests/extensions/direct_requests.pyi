from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.gate.gate import Gate
from kbroker._fast.net.direct import DirectAnswers, PartialAppend
from kbroker._fast.net.pending import Pending

def ask(
    direct: DirectAnswers,
    services: Any,
    version: int,
    correlation_id: int,
    request: Buffer,
    gate: Gate | None = None,
) -> bytes | list[bytes | FileRegion] | Pending | PartialAppend | None: ...
def answer_together(
    direct: DirectAnswers,
    services: Any,
    requests: Sequence[tuple[int, int, Buffer]],
    helper_pool: HelperPool | None = None,
    gate: Gate | None = None,
) -> list[bytes | list[bytes | FileRegion] | Pending | Exception | None]: ...

class EchoesTogether(DirectAnswers):
    def __init__(self, amid: Callable[[], object]) -> None: ...
