"""How far the recovery of a start is, for the log, `/readyz` and the metrics, and the end of a start before its time.

Each log has its own figures, which the one thread that recovers it writes; reports sum them up.  So nothing is locked,
and a report may be a batch behind.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

LEAST_SECONDS = 0.5
REPORT_SECONDS = 5.0


class LoadingInterruptedError(Exception):
    """The broker is to stop before all logs are loaded."""


class LogProgress:
    """One log: segments and bytes that recovery has still to read, and the bytes that it has read."""

    __slots__ = ("_start", "bytes_done", "bytes_left", "is_done", "segments_left")

    def __init__(self, start: RecoveryProgress | None = None) -> None:
        self._start = start
        self.segments_left = 0
        self.bytes_left = 0
        self.bytes_done = 0
        self.is_done = False

    def expect(self, segments: int, size_bytes: int) -> None:
        """What is left, as far as it is known now."""
        self.segments_left = segments
        self.bytes_left = size_bytes

    def read(self, size_bytes: int) -> None:
        """LoadingInterruptedError when the start is to end: a recovery may end anywhere."""
        if self._start is not None:
            self._start.check()
        self.bytes_done += size_bytes
        self.bytes_left = max(0, self.bytes_left - size_bytes)

    def finish(self) -> None:
        """Nothing is left to read of the log."""
        self.expect(0, 0)
        self.is_done = True


class DirectoryRecovery(NamedTuple):
    """What recovery has to do in one log directory; `seconds_left` is None while there is no estimate."""

    path: str
    logs_left: int
    segments_left: int
    bytes_left: int
    seconds_left: float | None


class RecoveryProgress:
    """The start of a broker: all its logs, and those of them that are recovered, by directory."""

    __slots__ = ("_logs", "_started", "_working", "interrupted", "logs_done", "logs_total", "next_report", "rebuilding")

    def __init__(self) -> None:
        self.logs_total = 0
        self.logs_done = 0
        self.interrupted = False
        self.rebuilding: set[str] = set()
        """Directories of partitions that are read anew in spite of a clean stop."""
        self._working: dict[str, LogProgress] = {}
        self._started = time.monotonic()
        self.next_report = self._started + REPORT_SECONDS
        self._logs: dict[str, list[LogProgress]] = {}

    def log(self, path: str) -> LogProgress:
        """A log in the directory `path` that may have to be recovered."""
        if not self._logs:
            self._started = time.monotonic()
            self.next_report = self._started + REPORT_SECONDS
        progress = LogProgress(self)
        self._logs.setdefault(path, []).append(progress)
        return progress

    def check(self) -> None:
        """LoadingInterruptedError when the start is to end."""
        if self.interrupted:
            raise LoadingInterruptedError

    def take_up(self, progress: LogProgress) -> None:
        """The thread that calls recovers this log now."""
        self._working[threading.current_thread().name] = progress

    def threads(self) -> dict[str, int]:
        """The segments that each thread has still to read of the log that it recovers."""
        return {name: progress.segments_left for name, progress in self._working.copy().items()}

    def directories(self) -> list[DirectoryRecovery]:
        """The directories where logs were recovered, with what is left."""
        seconds = time.monotonic() - self._started
        found = []
        for path, logs in list(self._logs.items()):
            left = sum(log.bytes_left for log in logs)
            done = sum(log.bytes_done for log in logs)
            found.append(
                DirectoryRecovery(
                    path,
                    sum(not log.is_done for log in logs),
                    sum(log.segments_left for log in logs),
                    left,
                    _seconds_left(left, done, seconds),
                )
            )
        return found

    @property
    def text(self) -> str:
        """One line for a person."""
        said = f"recovering logs, {self.logs_done} of {self.logs_total}"
        directories = self.directories()
        segments = sum(each.segments_left for each in directories)
        if not segments:
            return said
        size_bytes = sum(each.bytes_left for each in directories)
        said += f"; {segments} segment(s) with {size_bytes / 1e6:,.0f} MB left"
        times = [each.seconds_left for each in directories if each.seconds_left is not None]
        return f"{said}, about {max(times):.0f} s" if times else said


def _seconds_left(left: int, done: int, seconds: float) -> float | None:
    if not left:
        return 0.0
    return left * seconds / done if done and seconds > LEAST_SECONDS else None
