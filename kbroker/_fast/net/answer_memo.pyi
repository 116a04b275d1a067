from typing import Protocol

class Movable(Protocol):
    @property
    def armed(self) -> bool: ...
    def move(self, seconds: float, /) -> None: ...

class Validity:
    holds: bool
    def end(self) -> None: ...

class AnswerRenewal:
    def __init__(
        self,
        validity: Validity,
        deadline: Movable,
        seconds: float,
        client_id: str | None,
        client_host: str,
    ) -> None: ...

class AnswerMemo:
    def forget(self, *change: object) -> None: ...
    def __len__(self) -> int: ...
