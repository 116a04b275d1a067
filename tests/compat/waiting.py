"""Waiting for a condition, with a deadline and a reason when it does not come true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PACE = threading.Event()


class Waited(AssertionError):
    """The condition did not come true in time."""


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = 120.0, every: float = 0.02) -> T:
    """The first truthy answer of `condition`; `Waited` names `what` and the last answer when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Waited(f"waited {seconds:g} s for {what}; last seen: {answer!r}")
        _PACE.wait(every)
