"""What the log says of an outage of the controllers: its beginning at once, that it lasts now and then, and its end.

An outage may last for hours, and a broker asks several times a second meanwhile.  Outages that follow each other
closely do not have a line each.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

CLOSE_SECONDS = 10.0
"""The shortest time from one line about a failure to that about the beginning of another outage."""
REMIND_SECONDS = 300.0
"""So often the log says again that the controllers are away."""

logger = logging.getLogger("kbroker.cluster")


class Outage:
    """One for each way of asking the controllers.  `now()` is monotonic."""

    __slots__ = ("_began", "_is_said", "_now", "_said_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began: float | None = None
        self._is_said = False
        self._said_at = -math.inf

    def failed(self, text: str, *values: object) -> None:
        """A request has failed."""
        now = self._now()
        if self._began is None:
            self._began = now
        if now - self._said_at < (REMIND_SECONDS if self._is_said else CLOSE_SECONDS):
            logger.debug(text, *values)
            return
        if self._is_said:
            logger.warning(f"{text} (for %d s by now)", *values, now - self._began)
        else:
            logger.warning(text, *values)
        self._is_said = True
        self._said_at = now

    def over(self, text: str) -> None:
        """A request has been answered: the end of an outage of which the log has the beginning."""
        if self._began is None:
            return
        if self._is_said:
            logger.info("%s, after %d s", text, self._now() - self._began)
        self._began = None
        self._is_said = False
