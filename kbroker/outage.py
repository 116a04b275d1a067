"""What the log says of a condition that lasts: its beginning at once, that it lasts now and then, and its end.

A full disk, or controllers that are away, may last for hours, and what runs by a timer meets them with each turn.
Conditions that follow each other closely do not have a line each.  `Outage` is for one condition, `Outages` for one of
each key.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Hashable
from functools import partial

CLOSE_SECONDS = 10.0
"""The shortest time from one line about a failure to that about the beginning of another outage."""
REMIND_SECONDS = 300.0
"""So often the log says again that an outage lasts."""
MOST_KEYS = 1024


class Outage:
    """One for each thing that may fail again and again.  `now()` is monotonic.

    `failed` and `over` say what is so at the moment: a call that only repeats the one before costs no line.
    """

    __slots__ = ("_began", "_is_said", "_level", "_logger", "_now", "_said_at")

    def __init__(
        self, logger: logging.Logger, level: int = logging.WARNING, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._level = level
        self._now = now
        self._began: float | None = None
        self._is_said = False
        self._said_at = -math.inf

    @property
    def lasts(self) -> bool:
        """Whether what was tried last has failed."""
        return self._began is not None

    def failed(self, text: str, *values: object, error: BaseException | None = None, stacklevel: int = 1) -> None:
        """It has failed, or goes on failing; with a traceback where there is an `error`.

        `stacklevel`: how far up the caller is whose place in the code the line names.
        """
        now = self._now()
        if self._began is None:
            self._began = now
        level = self._level
        if now - self._said_at < (REMIND_SECONDS if self._is_said else CLOSE_SECONDS):
            level = logging.DEBUG
        elif self._is_said:
            text, values = f"{text} (for %d s by now)", (*values, now - self._began)
        self._logger.log(level, text, *values, exc_info=error, stacklevel=stacklevel + 1)
        if level != logging.DEBUG:
            self._is_said = True
            self._said_at = now

    def over(self, text: str, *values: object, stacklevel: int = 1) -> None:
        """It works: the end of an outage of which the log has the beginning."""
        if self._began is None:
            return
        if self._is_said:
            seconds = self._now() - self._began
            self._logger.info(f"{text}, after %d s", *values, seconds, stacklevel=stacklevel + 1)
        self._began = None
        self._is_said = False


class Outages:
    """An `Outage` for each key, of MOST_KEYS at a time; all others are one.  Any thread may call it."""

    __slots__ = ("_found", "_lock", "_new", "_others")

    def __init__(
        self, logger: logging.Logger, level: int = logging.WARNING, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._new = partial(Outage, logger, level, now)
        self._lock = threading.Lock()
        self._found: dict[Hashable, Outage] = {}
        self._others = self._new()

    def failed(self, key: Hashable, text: str, *values: object, error: BaseException | None = None) -> None:
        """See `Outage`."""
        with self._lock:
            found = self._found.get(key)
            if found is None and (len(self._found) < MOST_KEYS or self._has_made_room()):
                found = self._found[key] = self._new()
            (found or self._others).failed(text, *values, error=error, stacklevel=2)

    def over(self, key: Hashable, text: str, *values: object) -> None:
        """See `Outage`."""
        if self._found:
            with self._lock:
                found = self._found.get(key)
                if found is not None:
                    found.over(text, *values, stacklevel=2)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget what is no more, as a partition that was deleted."""
        if self._found:
            with self._lock:
                for key in self._found.keys() - set(keys):
                    del self._found[key]

    def _has_made_room(self) -> bool:
        """Forgets what is over."""
        ended = [key for key, each in self._found.items() if not each.lasts]
        for key in ended:
            del self._found[key]
        if ended:
            self._others = self._new()
        return bool(ended)
