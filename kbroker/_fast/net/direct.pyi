from typing import Any

class Partly:
    appended: list[tuple[int, int] | None]
    def go_on(self, ctx: Any, request: Any) -> Any: ...

class DirectAnswers: ...
