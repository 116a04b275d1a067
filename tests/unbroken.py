"""Coroutines that wait for nothing, run to their end without a loop."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from kbroker._fast.base.slices import Slices

# Nothing that awaits its pace ever waits.
HOUR_US = 3_600_000_000
UNBROKEN = Slices(None, HOUR_US)


def finished(answer: Any) -> Any:
    """What a handler or a method gives, whether it is a coroutine or not."""
    if not isinstance(answer, CoroutineType):
        return answer
    try:
        answer.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")
