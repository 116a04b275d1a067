from typing import Any

from typing_extensions import Buffer

from kbroker._fast.wire.structs import Plan

class Decoding:
    def __init__(self, plan: Plan, source: Buffer, position: int, end: int | None) -> None: ...
    def run(self, items: int) -> bool: ...
    def take(self) -> Any: ...
