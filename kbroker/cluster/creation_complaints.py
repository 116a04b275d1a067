"""Why topics that clients name are not made, once in a while: clients ask many times a second until one is there."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger("kbroker.cluster")

COMPLAINT_SECONDS = 30.0
MOST_COMPLAINTS = 1_000


class CreationComplaints:
    """Belongs to a broker's controller."""

    def __init__(self) -> None:
        self._complained_at: dict[str, float] = {}

    def tell(self, name: str, reason: object) -> None:
        """Log why a topic is not made, unless that was logged a moment ago."""
        now = asyncio.get_running_loop().time()
        if now - self._complained_at.get(name, -COMPLAINT_SECONDS) >= COMPLAINT_SECONDS:
            if len(self._complained_at) >= MOST_COMPLAINTS:
                self._complained_at.clear()
            self._complained_at[name] = now
            logger.warning("cannot create topic %r automatically: %s", name, reason)
