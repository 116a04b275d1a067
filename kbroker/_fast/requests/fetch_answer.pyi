from collections.abc import Callable
from typing import Any

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.wire.codec import Program

class FetchRules:
    def __init__(
        self,
        layout: tuple[int, ...],
        file_system: type,
        read_partition: Callable[[Any, int, int, bool, FetchTarget, int, bool, Any], tuple[Any, bool]],
        compile_answer: Callable[[int], Program],
    ) -> None: ...
