"""What a broker says of itself that must not happen: an exception that no part of it expected.

A fetcher, a periodic task or the controller goes on after such a one, so that nothing else might tell.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from tests.simulation.loop import SimulatedLoop

EXPECTED = (OSError, KafkaError, asyncio.CancelledError)
"""Faults of the surroundings, of which brokers tell with a traceback as well."""

OF_ONE_THAT_GOES = "coroutine ignored GeneratorExit"
"""What a coroutine of a broker that has crashed says when its memory is given back, in the midst of what it did."""


class Defects(logging.Handler):
    """Ends a history with the first of them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, EXPECTED) or not record.name.startswith("kbroker"):
            return
        if isinstance(error, RuntimeError) and str(error) == OF_ONE_THAT_GOES:
            return
        self._loop.failures.append(f"a broker says: {record.getMessage()}: {error!r}")
        self._loop.first_error = self._loop.first_error or error
        self._loop.stop()
