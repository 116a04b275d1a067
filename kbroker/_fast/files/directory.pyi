from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

def list_directory(path: str, make: Callable[[str, bool, int], T]) -> list[T]: ...
def read_small_file(path: str) -> bytes | None: ...
