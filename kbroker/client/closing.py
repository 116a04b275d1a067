"""What is closed at the end of a `with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Gives a class that has `close` the two methods of a `with`."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
