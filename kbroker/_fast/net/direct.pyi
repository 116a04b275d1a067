from typing import Any

class PartialAppend:
    appended: list[tuple[int, int] | None]
    def continue_in_handler(self, ctx: Any, request: Any) -> Any: ...

class DirectAnswers: ...
