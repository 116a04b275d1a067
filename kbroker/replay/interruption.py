"""Ctrl-C while Spark works: it ends what runs, and only the command says something.

PySpark has a handler of its own, which asks the JVM for something from within a call to the JVM that it has
interrupted: that fails, and py4j logs both.  Here Ctrl-C is Python's KeyboardInterrupt, as before there was a
session, and the session's end cancels its jobs.  What PySpark asks the JVM for on the way out, which may have ended by
then, hides it no more.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


def keeping_the_handler(make: Callable[[], Result]) -> Result:
    """What `make` returns, with SIGINT handled as before the call."""
    if threading.current_thread() is not threading.main_thread():
        return make()
    before = signal.getsignal(signal.SIGINT)
    try:
        return make()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def py4j_silent() -> Iterator[None]:
    """Within the block py4j, which raises what it logs, logs nothing."""

    def is_others(record: logging.LogRecord) -> bool:
        return "/py4j/" not in record.pathname

    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(is_others)  # py4j logs some of it by the root logger itself.
    own.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(is_others)
        own.setLevel(level)


@contextmanager
def interruption_kept() -> Iterator[None]:
    """KeyboardInterrupt for each error that was raised while a KeyboardInterrupt left the block."""
    try:
        yield
    except Exception as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        raise


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
