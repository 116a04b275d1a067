"""The signals that end a broker, without a moment in which one of them means something else.

    WATCHING  a signal begins the stop
    BEGUN     signals are ignored for REPEAT_SECONDS: one to a group of processes comes twice where a parent, such as
              make or timeout, passes its own on
    HEEDING   the system's own meaning: a signal ends the process at once, also while a disk holds the stop up
    OVER      signals are ignored: all is done, and what is left is the exit status

A signal's action is replaced in one system call each time.  The loop's own handlers must be removed first, which leaves
a gap with the system's meaning, so they are not used.  Before WATCHING there is nothing that a signal could harm.

SIGHUP, from a terminal that closes, is a stop like the others, as in Kafka; one that `nohup` has turned off stays off.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from enum import Enum, auto
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REPEAT_SECONDS = 0.5


class _State(Enum):
    WATCHING = auto()
    BEGUN = auto()
    HEEDING = auto()
    OVER = auto()


class StopSignals:
    """Made on the main thread, before the loop; the process watches from then on."""

    def __init__(self) -> None:
        self._state = _State.WATCHING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin: Callable[[], object] | None = None
        self._numbers = [
            number
            for number in STOP_SIGNALS
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        ]
        for number in self._numbers:
            signal.signal(number, self._on_signal)
            signal.siginterrupt(number, False)

    def attach(self, loop: asyncio.AbstractEventLoop, begin: Callable[[], object]) -> None:
        """Call `begin` once, on the loop, when there is a signal; at once, if there was one already."""
        self._loop, self._begin = loop, begin
        if self._state is _State.BEGUN:
            self._on_begun()

    def finish(self) -> None:
        """The stop is over: nothing that comes now changes how the process ends."""
        self._state = _State.OVER
        self._loop = None
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Stays in place while BEGUN: Python complains of a signal that it has noticed and finds ignored afterwards.
        if self._state is not _State.WATCHING:
            return
        self._state = _State.BEGUN
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._on_begun)

    def _on_begun(self) -> None:
        begin, self._begin = self._begin, None
        if self._loop is not None and begin is not None:
            self._loop.call_later(REPEAT_SECONDS, self._heed)
            begin()

    def _heed(self) -> None:
        if self._state is _State.BEGUN:
            self._state = _State.HEEDING
            for number in self._numbers:
                signal.signal(number, signal.SIG_DFL)
