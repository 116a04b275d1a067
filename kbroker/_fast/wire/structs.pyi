from collections.abc import Sequence
from typing import Any

class Struct:
    def __init__(self, **fields: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class Layout:
    names: tuple[str, ...]
    defaults: tuple[Any, ...]

PlanRow = tuple[str, int, int, bool, bool, int, "Plan | None"]

class Plan:
    struct_class: type[Struct]
    flexible: bool
    minimum: int
    depth: int
    def __init__(
        self,
        struct_class: type[Struct],
        flexible: bool,
        fields: Sequence[PlanRow],
        tagged: Sequence[PlanRow],
        absent: Sequence[tuple[str, bool]],
    ) -> None: ...

def make_struct(
    name: str, base: type[Struct], names: tuple[str, ...], defaults: tuple[Any, ...], namespace: dict[str, Any]
) -> Any: ...
