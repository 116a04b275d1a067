"""What keeps its state in a store, started again and again over the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

from kbroker.metadata.local_store import LocalStore


class HasStore(Protocol):
    """It leaves its store open."""

    store: LocalStore


T = TypeVar("T", bound=HasStore)


def started_again(make: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """A fixture's value: starts it, again each time; the stores of all are closed at the end."""
    with ExitStack() as stores:

        def start() -> T:
            found = make()
            stores.callback(found.store.close)
            return found

        yield start
