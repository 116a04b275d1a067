"""The life of one worker as its supervisor sees it: a machine without a clock, processes or sockets.

    STARTING → READY → WAITING (died; to be started again) → STARTING …
    STARTING → FAILED             it ended before it was ever ready: the host cannot start
    STARTING, READY → SILENT      it hangs and was killed; → WAITING or FAILED once its process has ended
    any      → STOPPING → GONE    the host stops

A worker that dies is started again at once, then after a pause that doubles with each death, up to half a minute;
after CALM seconds of readiness its earlier deaths no longer count.
"""

from __future__ import annotations

from enum import Enum, auto

from kbroker.backoff import ExponentialBackoff

BACKOFF = ExponentialBackoff(0.2, 30.0)
"""In seconds."""
CALM = 60.0


class WorkerState(Enum):
    """See the module."""

    STARTING = auto()
    READY = auto()
    SILENT = auto()
    WAITING = auto()
    FAILED = auto()
    STOPPING = auto()
    GONE = auto()


_NEXT = {
    WorkerState.STARTING: {
        WorkerState.READY,
        WorkerState.SILENT,
        WorkerState.WAITING,
        WorkerState.FAILED,
        WorkerState.STOPPING,
    },
    WorkerState.READY: {WorkerState.SILENT, WorkerState.WAITING, WorkerState.STOPPING},
    WorkerState.SILENT: {WorkerState.WAITING, WorkerState.FAILED, WorkerState.STOPPING},
    WorkerState.WAITING: {WorkerState.STARTING, WorkerState.GONE},
    WorkerState.FAILED: {WorkerState.GONE},
    WorkerState.STOPPING: {WorkerState.GONE},
    WorkerState.GONE: set(),
}


class WorkerLife:
    """Times are monotonic seconds."""

    __slots__ = ("_deaths", "_ready_at", "restart_count", "state", "was_ready")

    _ready_at: float | None
    """Of this process; None before it is ready."""

    def __init__(self) -> None:
        self.state = WorkerState.STARTING
        self.was_ready = False
        self.restart_count = 0
        self._deaths = 0
        self._ready_at = None

    def _move(self, to: WorkerState) -> None:
        if to not in _NEXT[self.state]:
            raise ValueError(f"a worker that is {self.state.name} does not become {to.name}")
        self.state = to

    def ready(self, now: float) -> None:
        """It serves; saying so again changes nothing."""
        if self.state is WorkerState.STARTING:
            self._move(WorkerState.READY)
            self.was_ready = True
            self._ready_at = now

    def died(self, now: float) -> float | None:
        """Its process has ended: for how long to wait before the next start; None where none is to follow."""
        if self.state is WorkerState.STOPPING:
            self._move(WorkerState.GONE)
            return None
        if not self.was_ready:
            self._move(WorkerState.FAILED)
            return None
        if self._ready_at is not None and now - self._ready_at >= CALM:
            self._deaths = 0
        self._move(WorkerState.WAITING)
        self._deaths += 1
        return 0.0 if self._deaths == 1 else BACKOFF.backoff(self._deaths - 2)

    def silent(self) -> None:
        """It hangs and was killed.  While the host stops that changes nothing: its end is what is waited for."""
        if self.state is not WorkerState.STOPPING:
            self._move(WorkerState.SILENT)

    def restarted(self) -> None:
        """Its next process has begun."""
        self._move(WorkerState.STARTING)
        self._ready_at = None
        self.restart_count += 1

    def stop(self) -> bool:
        """The host stops: whether there is a process to end."""
        if self.state in (WorkerState.STARTING, WorkerState.READY, WorkerState.SILENT):
            self._move(WorkerState.STOPPING)
            return True
        if self.state in (WorkerState.WAITING, WorkerState.FAILED):
            self._move(WorkerState.GONE)
        return self.state is WorkerState.STOPPING
