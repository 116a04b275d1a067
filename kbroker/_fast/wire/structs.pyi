from collections.abc import Sequence
from typing import Any, dataclass_transform

@dataclass_transform(kw_only_default=True, eq_default=False)
class Struct: ...

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
